"""The broker's half of the conversation with the sidecar, and what the group sees of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from rocketmq_broker.domain.role import Role
from rocketmq_broker.replica import dispatching
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.replica_link import (
    MAX_REGISTERED,
    Alive,
    Appended,
    CopyFrom,
    Following,
    Grant,
    Held,
    Hello,
    Hold,
    HoldKind,
    Lease,
    LogState,
    Message,
    NamedSettings,
    NoRole,
    Others,
    Prepare,
    Prepared,
    Probe,
    Registered,
    Release,
    Released,
    Repaired,
    Replicated,
    Replication,
    RoleNotice,
    Status,
    Suspected,
    Truncate,
    Truncated,
    Welcome,
    encode,
)
from rocketmq_runtime.config.settings import group_values
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_store.errors import NotWriterError
from rocketmq_store.log import whole_records
from rocketmq_store.log.segments import MappedFiles
from rocketmq_store.writer_lock import WriterLock
from tests.broker.broker_kit import Group, running
from tests.records import make_blank, make_record


async def becomes_slave(group: Group, following: Following) -> None:
    """A master whose sidecar takes mastership back and follows another one."""
    group.sidecar.send(Release())
    group.sidecar.send(following)
    await group.sidecar.receive(Released)


async def carried_out(group: Group) -> None:
    """What the sidecar has sent was carried out, and what that called in the next turn of the loop."""
    for _ in range(2):
        group.sidecar.send(Probe())
        await group.sidecar.receive(Alive)


async def test_the_first_word(tmp_path: Path) -> None:
    async with running(tmp_path / "store", master=False) as group:
        hello = await group.sidecar.receive(Hello)
        assert (hello.cluster_name, hello.broker_name, hello.address) == ("C", "broker-a", group.address)
        assert (hello.min_offset, hello.max_offset, hello.file_size) == (0, 0, 1024 * 1024)
        assert hello.settings == group_values(group.app.settings)
        assert not group.app.store.writer.held


async def test_without_controllers_the_sidecar_hears_who_is_registered(tmp_path: Path) -> None:
    async with running(tmp_path / "store", master=False, enableControllerMode=False) as group:
        hello = await group.sidecar.receive(Hello)
        assert hello.registered is None or not hello.registered.addresses
        assert not hello.controllers
        listed = {number: f"10.0.0.{number}:10911" for number in range(100)}
        group.app.replica.on_registered(listed)
        group.app.replica.on_registered(listed)
        told = await group.sidecar.receive(Registered, lambda message: len(message.addresses) > 0)
        assert told.addresses == {number: listed[number] for number in range(MAX_REGISTERED)}
        group.sidecar.send(Following(1, 0, ""))
        group.sidecar.send(Probe())
        await group.sidecar.receive(Alive)
        assert group.app.role.role is Role.SLAVE
        assert group.app.role.master_address is None
        group.sidecar.hang_up()
        assert (await group.sidecar.receive(Hello)).registered == told
        assert not [message for message in group.sidecar.received if isinstance(message, Registered)]


async def test_the_lock_changes_hands(tmp_path: Path) -> None:
    async with running(tmp_path / "store", master=False) as group:
        await group.sidecar.receive(Hello)
        sidecars = WriterLock(tmp_path / "store" / "writer.lock")
        sidecars.acquire()
        sidecars.release()
        await group.sidecar.make_master(hello=False)
        assert group.app.store.writer.held
        await group.send()
        group.sidecar.send(Release())
        released = await group.sidecar.receive(Released)
        assert released.max_offset == group.app.store.max_offset
        sidecars.acquire()
        sidecars.release()


async def test_a_lock_that_the_sidecar_kept_ends_the_link(tmp_path: Path) -> None:
    async with running(tmp_path / "store", master=False) as group:
        await group.sidecar.receive(Hello)
        sidecars = WriterLock(tmp_path / "store" / "writer.lock")
        sidecars.acquire()
        group.sidecar.send(Prepare(1))
        await group.sidecar.receive(Hello)
        assert group.app.role.role is Role.NONE
        sidecars.release()
        group.sidecar.send(Welcome(1))
        await group.sidecar.make_master(hello=False)
        assert (await group.send()).code == 0


async def test_a_release_of_nothing_is_answered(tmp_path: Path) -> None:
    async with running(tmp_path / "store", master=False) as group:
        await group.sidecar.receive(Hello)
        group.sidecar.send(Release())
        assert (await group.sidecar.receive(Released)).max_offset == 0


async def test_a_lost_link_ends_mastership_at_once(tmp_path: Path) -> None:
    async with running(tmp_path / "store", automatic=False) as group:
        sending = asyncio.ensure_future(group.send())
        await group.sidecar.receive(Appended, lambda message: message.max_offset > 0)
        group.sidecar.hang_up()
        assert (await sending).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await group.send()).code == ResponseCode.SERVICE_NOT_AVAILABLE
        hello = await group.sidecar.receive(Hello)
        assert hello.max_offset == group.app.store.max_offset > 0
        await group.sidecar.make_master(1, hello=False)


async def test_a_relaxed_lease_that_has_ended(tmp_path: Path) -> None:
    async with running(tmp_path / "store", master=False, durability="relaxed") as group:
        await group.sidecar.make_master(lease=0.0)
        answer = await group.send()
        assert (answer.code, "lease ended" in (answer.remark or "")) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
        group.sidecar.send(Lease(1, 1e12))
        await group.pull(0)
        assert (await group.send()).code == 0


async def test_a_strict_master_answers_without_a_lease(tmp_path: Path) -> None:
    async with running(tmp_path / "store", master=False) as group:
        await group.sidecar.make_master(lease=0.0)
        assert (await group.send()).code == 0


async def test_a_replica_without_a_role_refuses(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        group.sidecar.send(NoRole("the controllers said so"))
        await group.pull(0)
        answer = await group.send()
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "the controllers said so" in (answer.remark or "")
        assert not group.app.store.writer.held


@pytest.mark.parametrize(
    ("kind", "code", "text"),
    [
        (HoldKind.FENCED, ResponseCode.NO_PERMISSION, "SetFenced"),
        (HoldKind.HANDING_OVER, ResponseCode.SERVICE_NOT_AVAILABLE, "not available now"),
    ],
)
async def test_a_hold_is_final_and_ends(tmp_path: Path, kind: HoldKind, code: int, text: str) -> None:
    async with running(tmp_path / "store", automatic=False) as group:
        before = asyncio.ensure_future(group.send())
        appended = await group.sidecar.receive(Appended, lambda message: message.max_offset > 0)
        group.sidecar.send(Hold(7, kind, "because"))
        held = await group.sidecar.receive(Held)
        assert (held.serial, held.max_offset) == (7, appended.max_offset)
        refused = await group.send()
        assert refused.code == code
        assert text in (refused.remark or "")
        assert "because" in (refused.remark or "")
        assert group.app.store.max_offset == held.max_offset
        group.sidecar.send(Replication(1, held.max_offset, held.max_offset, 2))
        assert (await before).code == ResponseCode.SUCCESS, "accepted before the hold"
        assert (await group.pull(0)).code == ResponseCode.SUCCESS, "reads go on"
        group.sidecar.send(Hold(8, None, ""))
        await group.sidecar.receive(Held, lambda message: message.serial == 8)
        after = asyncio.ensure_future(group.send())
        end = (await group.sidecar.receive(Appended, lambda message: message.max_offset > held.max_offset)).max_offset
        group.sidecar.send(Replication(1, end, end, 2))
        assert (await after).code == ResponseCode.SUCCESS


async def test_a_hold_before_the_grant(tmp_path: Path) -> None:
    async with running(tmp_path / "store", master=False) as group:
        await group.sidecar.receive(Hello)
        group.sidecar.send(Hold(1, HoldKind.FENCED, "because"))
        await group.sidecar.make_master(hello=False)
        assert (await group.send()).code == ResponseCode.NO_PERMISSION


async def test_messages_during_a_release_wait_for_its_end(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        group.sidecar.send(Release())
        group.sidecar.send(Others(2, ()))
        group.sidecar.send(Prepare(2))
        await group.sidecar.receive(Released)
        prepared = await group.sidecar.receive(Prepared)
        assert prepared.epoch == 2
        group.sidecar.epoch = 2
        group.sidecar.send(Grant(2, 1e12))
        group.sidecar.acknowledge(prepared.max_offset)
        await group.pull(0)
        assert (await group.send()).code == 0


async def test_an_older_epoch_to_prepare_ends_the_link(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        group.sidecar.send(Prepare(0))
        await group.sidecar.receive(Hello)
        assert group.app.role.role is Role.NONE


async def test_a_slave_shows_what_its_master_confirmed(tmp_path: Path) -> None:
    """The sidecar's writing is played by the master's own log: the same bytes are there already."""
    async with running(tmp_path / "store", automatic=False, slaveReadEnable=True, durability="relaxed") as group:
        for _ in range(3):
            await group.send(properties="WAIT\x01false\x02")
        end = group.app.store.max_offset
        await becomes_slave(group, Following(2, 2, "127.0.0.1:1"))
        group.sidecar.send(Replicated(end, 0))
        assert (await group.pull(0)).code != 0
        group.sidecar.send(Replicated(end, end))
        answer = await group.pull(0)
        while answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY:  # slaves hold no pulls
            answer = await group.pull(0)
        assert (answer.code, (answer.ext_fields or {})["maxOffset"]) == (0, "3")
        assert group.app.role.master_address == "127.0.0.1:1"


async def test_what_is_confirmed_as_the_epoch_changes_becomes_visible(tmp_path: Path) -> None:
    """The sidecar reports each offset once, just before its next message: both arrive in one turn of the loop."""
    async with running(tmp_path / "store", automatic=False, durability="relaxed") as group:
        await group.send(properties="WAIT\x01false\x02")
        end = group.app.store.max_offset
        await becomes_slave(group, Following(2, 2, "127.0.0.1:1"))
        group.sidecar.send(Replicated(end, end))
        group.sidecar.send(Following(3, 2, "127.0.0.1:1"))
        await carried_out(group)
        assert group.app.store.queue_bounds("T", 0) == (0, 1)


async def test_a_slave_that_was_master_keeps_no_offset_of_the_time_before(tmp_path: Path) -> None:
    async with running(tmp_path / "store", master=False) as group:
        await group.sidecar.receive(Hello)
        for message in (Welcome(2), Following(1, 1, "127.0.0.1:1"), Replicated(0, 0)):
            group.sidecar.send(message)
        group.sidecar.members = frozenset({2})
        await group.sidecar.make_master(2, hello=False)
        assert (await group.send()).code == 0
        store = group.app.store
        end = store.max_offset
        while store.confirm_offset < end:
            await asyncio.sleep(0)
        await becomes_slave(group, Following(3, 1, "127.0.0.1:1"))
        group.sidecar.send(Repaired(0, end))
        await carried_out(group)
        assert (store.max_offset, store.confirm_offset) == (end, end)


async def test_whose_tables_are_copied_holds_up_no_message(tmp_path: Path) -> None:
    async with running(tmp_path / "store", automatic=False, slaveReadEnable=True, durability="relaxed") as group:
        await group.send(properties="WAIT\x01false\x02")
        end = group.app.store.max_offset
        await becomes_slave(group, Following(2, 0, ""))
        group.sidecar.send(Replicated(end, end))
        group.sidecar.send(CopyFrom("127.0.0.1:1"))
        answer = await group.pull(0)
        while answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            answer = await group.pull(0)
        assert (answer.code, (answer.ext_fields or {})["maxOffset"]) == (0, "1")
        assert group.app.role.master_address == "127.0.0.1:1"


async def test_truncation_is_answered_when_the_queues_have_forgotten(tmp_path: Path) -> None:
    async with running(tmp_path / "store", slaveReadEnable=True) as group:
        first = await group.send()
        cut = group.app.store.max_offset
        await group.send()
        group.sidecar.send(Release())
        group.sidecar.send(Following(2, 2, "127.0.0.1:1"))
        group.sidecar.send(Truncate(cut))
        assert (await group.sidecar.receive(Truncated)).offset == cut
        assert first.code == 0
        assert group.app.store.queue_bounds("T", 0) == (0, 1)
        assert group.app.store.max_offset == cut


async def ask(group: Group, code: int, body: bytes = b"", **fields: str) -> RemotingCommand:
    return await group.call(RemotingCommand(code, ext_fields=fields or None, body=body))


async def test_906(tmp_path: Path) -> None:
    async with running(tmp_path / "store", haListenPort=12345) as group:
        group.sidecar.send(NamedSettings('{"durability":"strict"}'))
        group.sidecar.send(Probe())
        await group.sidecar.receive(Alive)
        master = await ask(group, RequestCode.EXCHANGE_BROKER_HA_INFO)
        assert master.ext_fields == {
            "masterHaAddress": "127.0.0.1:12345",
            "masterFlushOffset": "0",
            "masterAddress": group.address,
            "logAudit": "true",
            "haIntroduction": "true",
            "mappedFileSizeCommitLog": str(group.app.settings.mapped_file_size_commit_log),
            "groupSettings": '{"durability":"strict"}',
            "clusterName": "C",
            "brokerName": "broker-a",
        }
        names = {"clusterName": "C", "brokerName": "broker-a"}
        same = await ask(group, RequestCode.EXCHANGE_BROKER_HA_INFO, **names)
        assert same.ext_fields == master.ext_fields
        for field in names:
            answer = await ask(group, RequestCode.EXCHANGE_BROKER_HA_INFO, **{**names, field: "other"})
            assert answer.code == ResponseCode.INVALID_PARAMETER
            assert "other" in (answer.remark or "")
            assert "this replica of cluster C, brokerName broker-a" in (answer.remark or "")
        await becomes_slave(group, Following(2, 2, "127.0.0.1:1"))
        assert (await ask(group, RequestCode.EXCHANGE_BROKER_HA_INFO)).ext_fields == {}


async def test_907_and_1007_are_the_sidecars(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        assert (await ask(group, RequestCode.GET_BROKER_EPOCH_CACHE)).code == ResponseCode.SYSTEM_ERROR
        group.sidecar.send(Status(b'{"epochs":1}', b'{"ha":1}'))
        await group.pull(0)
        assert (await ask(group, RequestCode.GET_BROKER_EPOCH_CACHE)).body == b'{"epochs":1}'
        assert (await ask(group, RequestCode.GET_BROKER_HA_STATUS)).body == b'{"ha":1}'


@pytest.mark.parametrize(
    "fields",
    [
        {"masterBrokerId": "2", "masterAddress": "127.0.0.1:2", "masterEpoch": "3", "syncStateSetEpoch": "4"},
        {"masterBrokerId": "1", "masterAddress": "127.0.0.1:2", "masterEpoch": "2147483647"},
        {"masterEpoch": "not a number"},
        {},
    ],
)
async def test_1008_is_a_hint_to_the_sidecar_and_its_contents_stay_here(tmp_path: Path, fields: dict[str, str]) -> None:
    async with running(tmp_path / "store") as group:
        before = encode_body(SyncStateSet(sync_state_set=frozenset({1, 2}), sync_state_set_epoch=4))
        answer = await ask(group, RequestCode.NOTIFY_BROKER_ROLE_CHANGED, before, **fields)
        assert answer.code == ResponseCode.SUCCESS
        assert encode(await group.sidecar.receive(RoleNotice)) == encode(RoleNotice())


async def test_a_burst_of_1008_is_one_hint(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        replica = group.app.replica
        for _ in range(1000):
            replica.role_notice()
        group.sidecar.send(Release())
        heard: list[Message] = []
        while not heard or not isinstance(heard[-1], Released):
            heard.append(await group.sidecar.receive(Message))
        assert sum(isinstance(message, RoleNotice) for message in heard) == 1


@pytest.mark.parametrize("code", [9999, RequestCode.POP_MESSAGE])
async def test_unknown_codes(tmp_path: Path, code: int) -> None:
    async with running(tmp_path / "store") as group:
        answer = await ask(group, code)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_both_ports_answer(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        port = group.app.settings.listen_port - 2
        answer = await group.call(RemotingCommand(RequestCode.EXCHANGE_BROKER_HA_INFO), port=port)
        assert answer.code == 0


async def test_a_socket_path_longer_than_an_address(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    async with running(tmp_path / "store", sidecarSocketPath=str(folder / "s.sock")) as group:
        assert (await group.send()).code == 0


async def test_a_restart_keeps_everything(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        for _ in range(3):
            await group.send()
        end = group.app.store.max_offset
    async with running(tmp_path / "store", master=False) as group:
        hello = await group.sidecar.receive(Hello)
        assert (hello.max_offset, hello.confirm_offset) == (end, end)
        group.sidecar.send(Welcome(1))
        assert await group.sidecar.make_master(2, hello=False) == end
        answer = await group.send()
        assert (answer.ext_fields or {})["queueOffset"] == "3"
        assert (await group.pull(0, suspend_ms=20_000)).code == 0


async def test_a_topic_known_by_its_messages_alone_is_taken_over(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        await group.send(topic="Young", default_topic_queue_nums=2)
    (tmp_path / "store" / "config" / "topics.json").unlink()
    async with running(tmp_path / "store", defaultTopicQueueNums=5) as group:
        assert (await group.pull(0, topic="Young", suspend_ms=20_000)).code == 0
        topic = group.app.topics.get("Young")
        assert topic is not None
        assert topic.write_queue_nums == 5


async def test_a_topic_known_by_its_delayed_messages_alone_is_taken_over_when_they_are_due(tmp_path: Path) -> None:
    levels = "3s 3s"
    async with running(tmp_path / "store", messageDelayLevel=levels) as group:
        await group.send(topic="Later", properties="DELAY\x011\x02")
    (tmp_path / "store" / "config" / "topics.json").unlink()
    async with running(tmp_path / "store", messageDelayLevel=levels) as group:
        await group.send(topic="Other")
        assert group.app.topics.get("Later") is None, "nobody knows of it yet"
        while group.app.topics.get("Later") is None:
            await asyncio.sleep(0.05)
        assert (await group.pull(0, topic="Later", suspend_ms=20_000)).code == 0


async def test_a_new_master_has_the_topics_that_its_keys_make(tmp_path: Path) -> None:
    async with running(tmp_path / "store", autoCreateTopicEnable=False) as group:
        assert (await group.send(topic="T")).code == ResponseCode.TOPIC_NOT_EXIST
    async with running(tmp_path / "store", master=False, traceTopicEnable=True, msgTraceTopicName="Tr") as group:
        copied = {name: topic for name, topic in group.app.topics.table.items() if name not in ("TBW102", "Tr")}
        group.app.topics.replace(group.app.topics.version, copied)  # as the old master had it
        await group.sidecar.receive(Hello)
        group.sidecar.send(Welcome(1))
        await group.sidecar.make_master(2, hello=False)
        assert (await group.send(topic="T")).code == ResponseCode.SUCCESS
        assert (await group.send(topic="Tr")).code == ResponseCode.SUCCESS


async def test_mastership_does_not_make_the_topics_look_younger(tmp_path: Path) -> None:
    """Or messages of an earlier master would seem older than the table, if two masters die soon after each other."""
    async with running(tmp_path / "store") as group:
        await group.send(topic="T")
        changed = group.app.topics.version
        await group.sidecar.make_master(2, hello=False)
        assert group.app.topics.version > changed
        assert group.app.topics.version.timestamp == changed.timestamp


async def test_queues_that_an_earlier_master_had_are_read(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        await group.send(topic="Wide", default_topic_queue_nums=8, queue_id=7)
    async with running(tmp_path / "store", master=False) as group:
        table = group.app.topics
        narrow = table.get("Wide")
        assert narrow is not None
        table.put(msgspec.structs.replace(narrow, read_queue_nums=4, write_queue_nums=4), state_version=1, now_ms=1)
        await group.sidecar.receive(Hello)
        group.sidecar.send(Welcome(1))
        await group.sidecar.make_master(2, hello=False)
        assert (await group.pull(0, topic="Wide", queue_id=7, suspend_ms=20_000)).code == 0
        topic = table.get("Wide")
        assert topic is not None
        assert (topic.read_queue_nums, topic.write_queue_nums) == (8, 4)


async def test_a_queues_numbers_continue_at_the_next_master(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        for _ in range(3):
            await group.send()
    async with running(tmp_path / "store", master=False) as group:
        await group.sidecar.receive(Hello)
        group.sidecar.send(Welcome(1))
        await group.sidecar.make_master(2, hello=False)
        answer = await group.send()
        assert (answer.ext_fields or {})["queueOffset"] == "3"


async def test_the_answer_to_a_probe_has_the_counts(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        await group.send(b"one")
        await group.pull(0)
        group.sidecar.send(Probe())
        counts = (await group.sidecar.receive(Alive)).counts
        assert counts is not None
        assert (counts.put_messages, sum(counts.answers), counts.sends_refused) == (1, 1, 0)
        assert counts.put_bytes > 3
        group.sidecar.send(NoRole("for a test"))
        await group.send(b"two")
        group.sidecar.send(Probe())
        counts = (await group.sidecar.receive(Alive)).counts
        assert counts is not None
        assert (counts.put_messages, counts.sends_refused) == (1, 1)


@pytest.mark.parametrize(
    ("error", "advice", "traceback"),
    [
        (OSError(5, "Input/output error"), "check its disk", False),
        (StorageError(Path("x"), "cannot be read"), "check its disk", False),
        (NotWriterError("a defect"), "it leaves the group", True),
    ],
)
async def test_why_a_replica_leaves_its_group_is_one_line_unless_it_is_a_defect(
    tmp_path: Path, error: Exception, advice: str, *, traceback: bool
) -> None:
    async with running(tmp_path / "store") as group:
        with capture_logs() as logs:
            group.app.replica._leave_group("making messages visible", error)
        line = next(entry for entry in logs if entry["log_level"] == "error")
        assert str(line["event"]).endswith(advice)
        assert str(error) in line["reason"]
        assert ("exc_info" in line) == traceback


async def test_the_answer_to_a_probe_reports_a_store_that_refuses_writes(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        for reason in (None, "a full disk", None):
            if reason is None:
                group.app.store.check_disk()
            else:
                group.app.store.disk_space.refuse(reason)
            group.sidecar.send(Probe())
            assert (await group.sidecar.receive(Alive)).refuses == reason


async def log_damaged(group: Group) -> int:
    """The gauge."""
    group.sidecar.send(Probe())
    counts = (await group.sidecar.receive(Alive)).counts
    assert counts is not None
    return counts.log_damaged


async def test_the_state_of_the_log_is_in_hello_and_sent_when_it_changes(tmp_path: Path) -> None:
    async with running(tmp_path / "store", master=False) as group:
        assert (await group.sidecar.receive(Hello)).log == LogState()
        damaged = LogState(damage=7, reason="flipped")
        group.app.replica.on_log_state(damaged)
        group.app.replica.on_log_state(damaged)
        group.app.replica.on_log_state(LogState())
        assert await group.sidecar.receive(LogState) == damaged
        assert await group.sidecar.receive(LogState) == LogState()
        assert await log_damaged(group) == 0
        group.app.replica.on_log_state(damaged)
        assert await log_damaged(group) == 1
        group.sidecar.hang_up()
        assert (await group.sidecar.receive(Hello)).log == damaged


@asynccontextmanager
async def slave_with(root: Path, data: bytes) -> AsyncIterator[tuple[Group, WriterLock, MappedFiles]]:
    """Replica 2, whose sidecar holds the lock, has written `data` to the log and follows a master."""
    async with running(root / "store", master=False) as group:
        await group.sidecar.receive(Hello)
        lock = WriterLock(group.app.settings.root / "writer.lock")
        lock.acquire()
        files = MappedFiles(group.app.settings.commit_log_path, group.app.store.files.file_size, writer=lock)
        files.load()
        files.write(0, data)
        group.sidecar.send(Welcome(2))
        group.sidecar.send(Following(1, 1, "127.0.0.1:1"))
        yield group, lock, files
        files.close()


async def test_a_slave_whose_messages_stop_to_become_visible_reports_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master's files were smaller: its blank ends where no file ends here. By its checksums nothing is damaged."""
    monkeypatch.setattr(dispatching, "STOP_SECONDS", 0.01)
    first = make_record(0)
    blank = len(first)
    master_file = 4096
    second = make_record(master_file, queue_offset=1)
    data = first + make_blank(master_file - blank) + second
    async with slave_with(tmp_path, data) as (group, lock, files):
        group.sidecar.send(Replicated(len(data), len(data)))
        state = await group.sidecar.receive(LogState)
        assert (state.damage, state.stopped) == (blank, True)
        assert f"messages from offset {blank} on do not become visible" in state.reason
        assert await log_damaged(group) == 1
        files.write(blank, make_record(blank, body=bytes(master_file), queue_offset=1))
        group.sidecar.send(Repaired(blank, len(data)))
        assert await group.sidecar.receive(LogState) == LogState()
        assert await log_damaged(group) == 0
        lock.release()


async def test_a_replica_that_lacks_what_it_knows_as_confirmed_does_not_become_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as damaged until it has the message, from a master."""
    monkeypatch.setattr(dispatching, "STOP_SECONDS", 0.01)
    first = make_record(0)
    start = len(first)
    second = make_record(start, b"second", queue_offset=1)
    end = start + len(second)
    async with slave_with(tmp_path, first + bytes(reversed(second))) as (group, lock, files):
        lock.release()
        with capture_logs() as logs:
            group.sidecar.send(Replicated(end, end))
            group.sidecar.send(Prepare(2))  # in the same turn
            hello = await group.sidecar.receive(Hello)
        assert (hello.log.damage, hello.max_offset) == (start, start)
        (line,) = [entry for entry in logs if entry["log_level"] == "error"]
        assert f"at offset {start} " in line["reason"]
        assert f"up to {end} are confirmed" in line["reason"]
        assert group.app.role.role is Role.NONE
        lock.acquire()
        group.sidecar.send(Following(3, 1, "127.0.0.1:1"))
        group.sidecar.send(Replicated(end, start))
        for _ in range(2):
            assert await log_damaged(group) == 1
        assert group.app.replica._log_state.damage == start, "it has not come to that place again"
        files.write(start, second)
        group.sidecar.send(Replicated(end, end))
        assert await group.sidecar.receive(LogState) == LogState()
        lock.release()
        await group.sidecar.make_master(4, hello=False)


@pytest.mark.parametrize("at", [pytest.param(4, id="head"), pytest.param(88, id="body")])
async def test_a_replica_whose_log_is_damaged_before_its_end_is_attached_and_repaired(tmp_path: Path, at: int) -> None:
    """Its sidecar starts while nothing of this is dispatched: it removes what is behind the end that the broker
    reports. Dispatching does not check bodies."""
    first = make_record(0)
    start = len(first)
    second = make_record(start, b"second", queue_offset=1)
    third = make_record(start + len(second), b"third", queue_offset=2)
    end = start + len(second) + len(third)
    async with slave_with(tmp_path, first + second + third) as (group, lock, files):
        files.write(start + at, b"\xff")
        group.sidecar.send(Replicated(end, start))
        lock.release()
        for message in (None, Prepare(2)):
            if message is None:
                group.sidecar.hang_up()
            else:
                group.sidecar.send(message)
            hello = await group.sidecar.receive(Hello)
            assert (hello.max_offset, hello.log.damage, hello.log.stopped) == (end, start, True)
            assert group.app.role.role is Role.NONE
        assert bytes(files.read(0, end)) != first + second + third
        assert bytes(files.read(start + len(second), len(third))) == third
        lock.acquire()
        group.sidecar.send(Following(3, 1, "127.0.0.1:1"))
        group.sidecar.send(Replicated(end, start if at == 4 else end))
        for _ in range(2):
            assert await log_damaged(group) == 1
        assert group.app.replica._log_state.damage == start
        files.write(start, second)
        group.sidecar.send(Repaired(start, start + len(second)))
        assert (await group.sidecar.receive(LogState, lambda state: state.damage < 0)).checked
        lock.release()
        await group.sidecar.make_master(4, hello=False)


async def test_others_run_while_the_end_of_the_log_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_records, "PORTION", 1)
    async with running(tmp_path / "store", master=False) as group:
        await group.sidecar.receive(Hello)
        lock = WriterLock(tmp_path / "store" / "writer.lock")
        lock.acquire()
        files = MappedFiles(tmp_path / "store" / "commitlog", group.app.store.files.file_size, writer=lock)
        files.load()
        end = 0
        for _ in range(20):
            record = make_record(end)
            files.write(end, record)
            end += len(record)
        lock.release()
        hello = asyncio.create_task(group.app.replica.hello())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not hello.done()
        assert (await hello).max_offset == end
        files.close()


async def test_what_was_repaired_or_is_suspected_is_read_again(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        for _ in range(3):
            assert (await group.send()).code == 0
        store = group.app.store
        segment = store.files.segment_at(0)
        body = 88  # of the first record
        whole = bytes(segment.view[body : body + 1])
        segment.view[body : body + 1] = b"\xff"
        group.sidecar.send(Suspected(store.max_offset - 1))
        damaged = await group.sidecar.receive(LogState)
        assert damaged.damage == 0
        segment.view[body : body + 1] = whole
        group.sidecar.send(Repaired(0, store.max_offset))
        assert await group.sidecar.receive(LogState, lambda state: state.checked) == LogState()
