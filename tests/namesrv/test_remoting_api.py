"""What the remoting door does beyond the golden story: bad requests, files, settings, timers, notices."""

import asyncio
import json
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.remoting.nameserver import NotifyMinBrokerIdChangeRequestHeader
from rocketmq_namesrv.kv_store import KVStore
from rocketmq_namesrv.metrics import Counts, NameServerMetrics
from rocketmq_namesrv.registry import EVENT_LINES
from rocketmq_runtime.config.live_config import MAX_WAITING
from rocketmq_runtime.config.settings import SettingsError
from rocketmq_runtime.files.filesystem import StorageError
from tests.golden.namesrv_story import (
    A2,
    CLUSTER,
    HA2,
    A,
    Step,
    T,
    U,
    compressed,
    register,
    topic,
    unregister,
    version,
    wrapper,
)
from tests.namesrv.namesrv_kit import Door

BOTH = wrapper([T, U], version(1, 1))


@pytest.fixture
async def door(tmp_path: Path) -> Door:
    return Door(tmp_path)


def send_step(door: Door, step: Step) -> ResponseCode:
    answer = door.ask(step.code, step.ext, step.body, connection=step.connection, version=step.version)
    return ResponseCode(answer.code)


def route_code(door: Door, topic: str = "T") -> ResponseCode:
    return ResponseCode(door.ask(105, {"topic": topic}).code)


class TestRegistrationsOnTheWire:
    async def test_compressed_but_not_declared_is_read(self, door: Door) -> None:
        """Java brokers with compressedRegister=true send that; 5.3.3 refuses it."""
        assert send_step(door, register("r", body=compressed([T, U], version(1)))) == 0
        assert route_code(door) == 0

    async def test_sender_before_3_0_11_sends_the_wrapper_only(self, door: Door) -> None:
        step = register("r", body=json.dumps(json.loads(BOTH)["topicConfigSerializeWrapper"]).encode())
        assert door.ask(103, step.ext, step.body, version=36).code == 0
        assert route_code(door) == 0

    async def test_no_body_is_the_empty_version(self, door: Door) -> None:
        step = register("r", body=b"")
        assert send_step(door, step) == 0
        answer = door.ask(322, step.ext, json.dumps({"counter": 0, "stateVersion": 0, "timestamp": 0}).encode())
        assert answer.ext_fields == {"changed": "false"}

    @pytest.mark.parametrize(
        "body",
        [
            b"{",
            b"[]",
            b"\x78\x9cnot zlib",
            b"\xff\xfe",
            b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T","perm":"x"}}}}',
            b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":1}}}',
        ],
    )
    async def test_bad_bodies_are_refused(self, door: Door, body: bytes) -> None:
        assert send_step(door, register("r", body=body)) == ResponseCode.SYSTEM_ERROR
        assert door.registry.tables.groups == {}

    async def test_a_topic_without_a_name_is_passed_over(self, door: Door) -> None:
        body = json.loads(BOTH)
        body["topicConfigSerializeWrapper"]["topicConfigTable"]["x"] = {"perm": 6}
        with capture_logs() as logs:
            assert send_step(door, register("r", body=json.dumps(body).encode())) == 0
        assert [line["count"] for line in logs if "skipped" in line["event"]] == [1]
        assert (route_code(door), route_code(door, "x")) == (0, ResponseCode.TOPIC_NOT_EXIST)

    async def test_one_name_in_two_clusters_is_reported(self, door: Door) -> None:
        send_step(door, register("r", body=BOTH))
        step = register("r", broker_id=2, address=A2, body=BOTH)
        other = {**step.ext, "clusterName": "Other"}
        with capture_logs() as lines:
            for _ in range(2):
                assert door.ask(103, other, step.body).code == 0
        assert [(line["cluster"], line["other_cluster"]) for line in lines if "two clusters" in line["event"]] == [
            ("Other", CLUSTER)
        ]

    async def test_numbers_in_quotes_are_numbers(self, door: Door) -> None:
        """As fastjson reads them; the topics are the ones of the strict form."""
        body = BOTH.replace(b'"perm": 6', b'"perm": "6"').replace(b'"perm":6', b'"perm":"6"')
        assert body != BOTH
        assert send_step(door, register("r", body=body)) == 0
        assert route_code(door) == 0

    async def test_a_version_is_asked_without_a_body(self, door: Door) -> None:
        """Java: nothing equals no version."""
        step = register("r", body=BOTH)
        send_step(door, step)
        answer = door.ask(322, step.ext, b"")
        assert (answer.code, answer.ext_fields) == (0, {"changed": "true"})
        assert json.loads(answer.body)["counter"] == 1

    @pytest.mark.parametrize("missing", ["brokerName", "brokerAddr", "clusterName", "brokerId"])
    async def test_missing_fields_are_refused(self, door: Door, missing: str) -> None:
        step = register("r", body=BOTH)
        ext = {key: value for key, value in (step.ext or {}).items() if key != missing}
        answer = door.ask(103, ext, BOTH)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert missing in (answer.remark or "")

    @pytest.mark.parametrize(("field", "value"), [("brokerId", "x"), ("brokerId", "-1"), ("brokerAddr", "")])
    async def test_wrong_fields_are_refused(self, door: Door, field: str, value: str) -> None:
        step = register("r", body=BOTH)
        assert door.ask(103, {**(step.ext or {}), field: value}, BOTH).code != 0
        assert door.registry.tables.groups == {}

    async def test_a_full_table_is_reported(self, tmp_path: Path) -> None:
        door = Door(tmp_path, maxTopics="4")
        assert send_step(door, register("r", body=BOTH)) == 0
        more = wrapper([T, U, {**T, "topicName": "V"}], version(2, 1))
        assert send_step(door, register("r", body=more)) == ResponseCode.SYSTEM_BUSY
        assert route_code(door) == 0

    @pytest.mark.parametrize("code", [100, 101, 102, 104, 105, 205, 216, 217, 219, 224, 322, 327, 901, 904])
    async def test_no_header_at_all(self, door: Door, code: int) -> None:
        answer = door.ask(code)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark


class TestLog:
    @pytest.mark.looptime
    async def test_what_is_refused_again_and_again_is_one_line_a_minute(self, door: Door) -> None:
        mangled = register("r", body=BOTH, bodyCrc32="7")
        with capture_logs() as lines:
            for _ in range(100):
                assert door.ask(105, {}).code == ResponseCode.SYSTEM_ERROR
                assert door.ask(103, {"brokerName": "b"}).code == ResponseCode.SYSTEM_ERROR
                assert send_step(door, mangled) == ResponseCode.SYSTEM_ERROR
                door.peers.clear()  # the next one comes over another connection
            assert [line["event"] for line in lines] == [
                "request refused",
                "request refused",
                "registration refused: its checksum differs",
            ]
            await asyncio.sleep(60)
            door.ask(105, {})
        assert len(lines) == 4


class TestEnds:
    async def test_a_connection_takes_its_brokers_along(self, door: Door) -> None:
        send_step(door, register("r", body=BOTH))
        door.close(A)
        assert route_code(door) == ResponseCode.TOPIC_NOT_EXIST

    @pytest.mark.looptime
    @pytest.mark.parametrize("beat", [904, 322])
    async def test_silence_ends_a_broker_and_its_connection(self, tmp_path: Path, beat: int) -> None:
        door = Door(tmp_path, scanNotActiveBrokerInterval="1000")
        door.registry.start()
        step = register("r", body=BOTH, heartbeatTimeoutMillis="10000")
        send_step(door, step)
        for _ in range(3):
            await asyncio.sleep(8)
            assert send_step(door, Step("beat", beat, step.ext, connection=A)) == 0
        assert route_code(door) == 0
        await asyncio.sleep(12)
        assert route_code(door) == ResponseCode.TOPIC_NOT_EXIST
        assert door.peers[A].closed
        await door.registry.stop()

    @pytest.mark.looptime
    async def test_a_silent_broker_does_not_wait_for_the_next_scan(self, tmp_path: Path) -> None:
        door = Door(tmp_path, scanNotActiveBrokerInterval="5000")
        door.registry.start()
        step = register("r", body=BOTH, heartbeatTimeoutMillis="10000")
        await asyncio.sleep(0.3)
        send_step(door, step)
        await asyncio.sleep(7.4)
        assert send_step(door, Step("beat", 904, step.ext, connection=A)) == 0
        await asyncio.sleep(9.9)
        assert route_code(door) == 0
        await asyncio.sleep(0.3)
        assert route_code(door) == ResponseCode.TOPIC_NOT_EXIST
        await door.registry.stop()

    async def test_the_new_smallest_id_is_sent_if_configured(self, tmp_path: Path) -> None:
        door = Door(tmp_path, notifyMinBrokerIdChanged="true")
        send_step(door, register("r", body=BOTH, enableActingMaster="true"))
        send_step(door, register("r", address=A2, ha=HA2, broker_id=1, body=BOTH, enableActingMaster="true"))
        door.close(A)
        await asyncio.sleep(0)
        ((address, notice),) = door.client.sent
        assert (address, notice.code) == (A2, 905)
        header = decode_header(NotifyMinBrokerIdChangeRequestHeader, notice.ext_fields or {})
        assert (header.min_broker_id, header.min_broker_addr, header.offline_broker_addr) == (1, A2, A)
        assert (header.broker_name, header.ha_broker_addr) == (None, None)
        await door.registry.stop()

    async def test_and_not_by_default(self, door: Door) -> None:
        send_step(door, register("r", body=BOTH, enableActingMaster="true"))
        send_step(door, register("r", address=A2, broker_id=1, body=BOTH, enableActingMaster="true"))
        door.close(A)
        await door.registry.stop()
        assert door.client.sent == []


class TestSettings:
    @pytest.mark.parametrize(
        ("key", "codes"), [("enableAllTopicList", [206]), ("enableTopicList", [224, 311, 312, 313])]
    )
    async def test_lists_can_be_switched_off(self, tmp_path: Path, key: str, codes: list[int]) -> None:
        door = Door(tmp_path, **{key: "false"})
        for code in codes:
            answer = door.ask(code, {"cluster": CLUSTER})
            assert (answer.code, answer.remark) == (1, "disable")

    @pytest.mark.looptime
    async def test_routes_can_wait_for_brokers(self, tmp_path: Path) -> None:
        door = Door(tmp_path, needWaitForService="true", waitSecondsForService="45")
        send_step(door, register("r", body=BOTH))
        answer = door.ask(105, {"topic": "T"})
        assert (answer.code, answer.remark) == (1, "name server not ready")
        await asyncio.sleep(45)
        assert route_code(door) == 0

    async def test_order_configuration_is_in_the_route_if_wanted(self, tmp_path: Path) -> None:
        door = Door(tmp_path, orderMessageEnable="true")
        send_step(door, register("r", body=BOTH))
        assert b"orderTopicConf" not in door.ask(105, {"topic": "T"}).body
        (await door.told(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:8"}))
        assert b'"orderTopicConf":"broker-a:8"' in door.ask(105, {"topic": "T"}).body

    async def test_orders_can_be_kept_from_brokers(self, tmp_path: Path) -> None:
        door = Door(tmp_path, returnOrderTopicConfigToBroker="false")
        (await door.told(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:8"}))
        step = register("r", body=BOTH)
        assert door.ask(103, step.ext, step.body).body == b""

    async def test_updates_take_effect_and_are_kept(self, tmp_path: Path) -> None:
        door = Door(tmp_path)
        step = register("r", address=A2, broker_id=1, body=BOTH, enableActingMaster="true")
        send_step(door, step)
        assert b'"1":"' in door.ask(105, {"topic": "T"}).body
        assert (await door.update(b"supportActingMaster=true\nunknownKey=1\n")).code == 0
        assert b'"0":"' in door.ask(105, {"topic": "T"}).body
        assert Door(tmp_path).config.settings.support_acting_master
        assert b"supportActingMaster=true\n" in door.ask(319).body

    @pytest.mark.parametrize(
        ("body", "code"),
        [
            (b"kvConfigPath=/x\n", ResponseCode.NO_PERMISSION),
            (b"configStorePath=/x\n", ResponseCode.NO_PERMISSION),
            (b"rocketmqHome=/x\n", ResponseCode.NO_PERMISSION),
            (b"enableTopicList=maybe\n", ResponseCode.INVALID_PARAMETER),
            (b"clusterTest=true\n", ResponseCode.INVALID_PARAMETER),
            (b"a=\\u12\n", ResponseCode.SYSTEM_ERROR),
            (b"", ResponseCode.SUCCESS),
        ],
    )
    async def test_refused_updates(self, door: Door, body: bytes, code: ResponseCode) -> None:
        before = door.config.settings
        assert (await door.update(body)).code == code
        assert door.config.settings == before

    async def test_waiting_updates_of_one_host_leave_places(self, door: Door) -> None:
        door.peer("stranger").host = "10.0.0.66"
        async with door.config._turn:  # an update is being written
            many = [asyncio.ensure_future(door.told(318, connection="stranger")) for _ in range(MAX_WAITING)]
            last = asyncio.ensure_future(door.told(318))
            await asyncio.sleep(0)  # they begin
            await asyncio.sleep(0)  # and wait for their turn
        *codes, honest = [answer.code for answer in await asyncio.gather(*many, last)]
        assert codes == [ResponseCode.SUCCESS] * 8 + [ResponseCode.SYSTEM_BUSY] * 8
        assert honest == ResponseCode.SUCCESS

    async def test_two_ports_cannot_be_one(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsError, match="metricsPromExporterPort"):
            Door(tmp_path, metricsPromExporterPort="9876")


async def test_frequent_changes_do_not_fill_the_log(door: Door) -> None:
    with capture_logs() as lines:
        for number in range(3 * EVENT_LINES):
            door.ask(217, {"topic": f"t{number}"}, b"")
    assert len(lines) == EVENT_LINES


class TestKV:
    async def test_kept_over_a_restart_as_java_writes_it(self, tmp_path: Path) -> None:
        door = Door(tmp_path)
        (await door.told(100, {"namespace": "n", "key": "k", "value": "v"}))
        file = door.config.settings.kv_path
        assert json.loads(file.read_text()) == {"configTable": {"n": {"k": "v"}}}
        assert Door(tmp_path).ask(101, {"namespace": "n", "key": "k"}).ext_fields == {"value": "v"}

    async def test_an_editors_mark_before_the_file_changes_nothing(self, tmp_path: Path) -> None:
        door = Door(tmp_path)
        await door.told(100, {"namespace": "n", "key": "k", "value": "v"})
        assert door.ask(100, {"namespace": "n", "value": "v"}).remark == "namespace or key is null"
        file = door.config.settings.kv_path
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
        assert Door(tmp_path).ask(101, {"namespace": "n", "key": "k"}).ext_fields == {"value": "v"}

    async def test_an_entry_that_cannot_be_read_is_left_out_and_kept(self, tmp_path: Path) -> None:
        file = Door(tmp_path).config.settings.kv_path
        file.parent.mkdir()
        text = b'{"configTable":{"n":{"k":"v","odd":[1]},"m":7,},}'
        file.write_bytes(text)
        door = Door(tmp_path)
        assert door.ask(101, {"namespace": "n", "key": "k"}).ext_fields == {"value": "v"}
        await door.told(100, {"namespace": "n", "key": "new", "value": "w"})
        assert b"odd" not in file.read_bytes()
        assert [kept.read_bytes() for kept in file.parent.glob("*.unread")] == [text]

    async def test_a_folder_in_the_place_of_a_file_refuses_the_start(self, tmp_path: Path) -> None:
        """As Docker makes it where a file that does not exist is mounted: no change could be kept."""
        (tmp_path / "kv" / "kvConfig.json").mkdir(parents=True)
        with pytest.raises(StorageError, match="Is a directory"):
            Door(tmp_path)
        (tmp_path / "kv" / "kvConfig.json").rmdir()
        (tmp_path / "kept.properties").mkdir()
        with pytest.raises(SettingsError, match=r"kept\.properties: .*Is a directory"):
            Door(tmp_path)

    async def test_what_cannot_be_kept_is_not_done(self, tmp_path: Path) -> None:
        door = Door(tmp_path)
        (tmp_path / "kv").write_text("a file where the folder should be")
        assert (await door.told(100, {"namespace": "n", "key": "k", "value": "v"})).code == ResponseCode.SYSTEM_ERROR
        assert door.ask(101, {"namespace": "n", "key": "k"}).code == ResponseCode.QUERY_NOT_FOUND

    async def test_too_long_texts_are_refused(self, door: Door) -> None:
        answer = await door.told(100, {"namespace": "n", "key": "k", "value": "v" * 65_537})
        assert answer.code == ResponseCode.INVALID_PARAMETER

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"configTable":1}'])
    async def test_a_damaged_file_refuses_the_start(self, tmp_path: Path, content: bytes) -> None:
        file = tmp_path / "kvConfig.json"
        file.write_bytes(content)
        with pytest.raises(StorageError, match="move it away"):
            KVStore(file)
        assert file.read_bytes() == content


def test_counted_by_name_and_bounded() -> None:
    counts = Counts()
    for code in (105, 105, 77_777, 88_888):
        counts.answered(code, 0 if code == 105 else 3)
    registry = CollectorRegistry()
    NameServerMetrics(registry, counts, lambda: {"topics": ("Topics registered", 4)})
    page = generate_latest(registry).decode()
    assert 'request_type="GET_ROUTEINFO_BY_TOPIC",response_code="SUCCESS"} 2.0' in page
    assert 'request_type="UNKNOWN",response_code="REQUEST_CODE_NOT_SUPPORTED"} 2.0' in page
    assert "rocketmq_namesrv_topics 4.0" in page


async def test_a_failure_behind_the_answer_is_the_answer_and_nothing_else_fails(tmp_path: Path) -> None:
    """What the metrics read of it must not fail a second time, in a callback."""
    door = Door(tmp_path)
    failed: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
    failed.set_exception(ValueError("no"))
    door.api._routes[103] = lambda *_: failed
    others: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: others.append(context))
    answer = door.begin(103)
    assert answer is failed
    with pytest.raises(ValueError, match="no"):
        await failed
    await asyncio.sleep(0)
    assert others == []


class TestUnregister:
    @pytest.mark.parametrize(
        ("field", "value", "says"),
        [
            ("clusterName", "Other", "not as cluster Other, "),
            ("brokerName", "other", "brokerName other, "),
            ("brokerId", "1", "brokerId 1: "),
        ],
    )
    async def test_another_broker_is_not_removed(self, door: Door, field: str, value: str, says: str) -> None:
        assert send_step(door, register("r", body=BOTH)) == 0
        step = unregister("u")
        answer = door.ask(104, {**step.ext, field: value})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert says in (answer.remark or "")
        assert f"{A} is registered as cluster {CLUSTER}, brokerName broker-a, brokerId 0" in (answer.remark or "")
        assert route_code(door) == 0
        assert send_step(door, step) == 0
        assert route_code(door) == ResponseCode.TOPIC_NOT_EXIST

    async def test_nobody_at_the_address_is_no_error(self, door: Door) -> None:
        assert send_step(door, register("r", body=BOTH)) == 0
        assert send_step(door, unregister("u", address=A2)) == 0
        assert route_code(door) == 0


def writable(door: Door, topic: str = "T") -> bool:
    route = json.loads(door.ask(105, {"topic": topic, "acceptStandardJsonOnly": "true"}).body)
    return all(queue["perm"] & 2 for queue in route["queueDatas"])


class TestWipedWritePermission:
    async def test_what_is_wiped_stays_so(self, tmp_path: Path) -> None:
        """Through a new topic, another master, the end of all registrations, and a restart; then a tool adds it."""
        door = Door(tmp_path)
        assert send_step(door, register("r", body=BOTH)) == 0
        assert (await door.told(205, {"brokerName": "broker-a"})).code == 0
        assert send_step(door, register("a new topic", body=wrapper([T, U, topic("V")], version(2)))) == 0
        assert [writable(door, name) for name in ("T", "V")] == [False, False]
        assert send_step(door, register("another master", address=A2, body=wrapper([T, U], version(3, 2)))) == 0
        assert not writable(door)
        assert send_step(door, unregister("u", address=A2)) == 0
        for now in (door, Door(tmp_path)):
            assert send_step(now, register("again", body=wrapper([T, U], version(4, 3)))) == 0
            assert not writable(now)
        assert (await now.told(327, {"brokerName": "broker-a"})).code == 0
        for after in (now, Door(tmp_path)):
            assert send_step(after, register("later", body=wrapper([T, U], version(5, 3)))) == 0
            assert writable(after)

    async def test_a_wiped_broker_that_comes_back_is_reported(self, tmp_path: Path) -> None:
        """It may be a new group of that name, which gets no sends."""
        door = Door(tmp_path)
        assert send_step(door, register("r", body=BOTH)) == 0
        assert (await door.told(205, {"brokerName": "broker-a"})).code == 0
        with capture_logs() as lines:
            assert send_step(door, register("again", body=wrapper([T, U], version(2)))) == 0
        assert lines == [], "it was there"
        with capture_logs() as lines:
            assert send_step(Door(tmp_path), register("first", body=BOTH)) == 0
        assert [line["broker"] for line in lines if "addWritePerm" in line["event"]] == ["broker-a"]

    async def test_a_topic_that_a_tool_registers_is_not_written_to(self, door: Door) -> None:
        assert send_step(door, register("r", body=BOTH)) == 0
        assert (await door.told(205, {"brokerName": "broker-a"})).code == 0
        queue = b'{"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":1,"writeQueueNums":1}]}'
        assert door.ask(217, {"topic": "V"}, queue).code == 0
        assert not writable(door, "V")

    async def test_other_brokers_are_written_to(self, door: Door) -> None:
        assert send_step(door, register("r", body=BOTH)) == 0
        assert (await door.told(205, {"brokerName": "nobody"})).code == 0
        assert send_step(door, register("nobody", address=A2, broker="nobody", body=BOTH)) == 0
        assert writable(door), "a name that was not registered was not wiped"

    async def test_it_ends_with_its_entry(self, door: Door) -> None:
        assert send_step(door, register("r", body=BOTH)) == 0
        assert (await door.told(205, {"brokerName": "broker-a"})).code == 0
        entry = {"namespace": "ROCKETMQ_HA_WIPED_WRITE_PERM", "key": "broker-a"}
        assert (await door.told(102, entry)).code == 0
        assert send_step(door, register("a change", body=wrapper([T, U], version(2, 1)))) == 0
        assert writable(door)
