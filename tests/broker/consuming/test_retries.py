"""Retries, dead letters and delayed messages, at a whole broker; their rules without one."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from rocketmq_broker.consuming import delay_service
from rocketmq_broker.domain.consuming.delays import LevelProgress
from rocketmq_broker.domain.consuming.retries import Retry, retry_of, retry_properties
from rocketmq_broker.domain.role import Role
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.client import ConsumerData, ConsumerSendMsgBackRequestHeader, HeartbeatData
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.replica_link import Appended, Following
from rocketmq_formats.store.config_files import DelayOffsetsFile, decode_config
from rocketmq_formats.store.message import Record, read_record
from rocketmq_formats.store.message_id import decode_message_id
from rocketmq_formats.store.message_properties import parse_properties
from rocketmq_formats.topics import SCHEDULE_TOPIC, SubscriptionGroupConfig
from rocketmq_store.errors import MessageIllegalError
from rocketmq_store.model import Appended as Stored
from rocketmq_store.model import Draft
from tests.broker.broker_kit import Group, running

QUICK = "1s 1s 1s 1s 1s"


def back(offset: int, **fields: object) -> RemotingCommand:
    header = ConsumerSendMsgBackRequestHeader(offset=offset, group="G", delay_level=0, origin_topic="T")
    return request(RequestCode.CONSUMER_SEND_MSG_BACK, msgspec.structs.replace(header, **fields))


async def sent(group: Group, **fields: object) -> int:
    """The physical offset of a new message."""
    answer = await group.send(**fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_message_id((answer.ext_fields or {})["msgId"])[1]


async def pulled(group: Group, topic: str, offset: int = 0, **fields: object) -> tuple[Record, bytes]:
    """The next record of a queue, waited for."""
    answer = await group.pull(offset, topic=topic, suspend_ms=15_000, **fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    record = read_record(answer.body, 0, len(answer.body), check_crc=True)
    assert isinstance(record, Record)
    return record, bytes(record.body(answer.body))


def with_delay(level: str) -> str:
    return f"UNIQ_KEY\x01A\x02DELAY\x01{level}\x02"


async def test_a_message_sent_back_comes_again(tmp_path: Path) -> None:
    async with running(tmp_path, messageDelayLevel=QUICK) as group:
        offset = await sent(group)
        answer = await group.call(back(offset))
        assert answer.code == ResponseCode.SUCCESS
        record, body = await pulled(group, "%RETRY%G")
        properties = parse_properties(record.properties)
        assert (body, record.reconsume_times, properties["RETRY_TOPIC"]) == (b"hello", 1, "T")
        assert properties["TAGS"] == "TagA"
        first_id = properties["ORIGIN_MESSAGE_ID"]
        assert decode_message_id(first_id)[1] == offset

        # and once more: what the first try left stays
        await group.call(back(record.physical_offset))
        again, _ = await pulled(group, "%RETRY%G", 1)
        properties = parse_properties(again.properties)
        assert (again.reconsume_times, properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == (2, "T", first_id)


async def test_a_message_given_up_is_a_dead_letter(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        offset = await sent(group)
        for fields in ({"delay_level": -1}, {"max_reconsume_times": 0}):
            assert (await group.call(back(offset, **fields))).code == ResponseCode.SUCCESS
        for queue_offset in (0, 1):
            record, body = await pulled(group, "%DLQ%G", queue_offset)
            assert (body, record.reconsume_times) == (b"hello", 1)


async def test_what_cannot_be_sent_back(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        offset = await sent(group)
        missing = await group.call(back(offset + 1))
        assert (missing.code, missing.remark) == (
            ResponseCode.SYSTEM_ERROR,
            f"look message by offset failed, {offset + 1}",
        )
        for bad in (-1, 2**62):
            assert (await group.call(back(bad))).code == ResponseCode.SYSTEM_ERROR
        long_name = await group.call(back(offset, group="g" * 121))
        assert long_name.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        group.sidecar.send(Following(2, 2, "127.0.0.1:1"))
        while group.app.role.role is not Role.SLAVE:
            await asyncio.sleep(0)
        assert (await group.call(back(offset))).code == ResponseCode.SYSTEM_BUSY


async def test_what_is_not_confirmed_can_neither_be_viewed_nor_sent_back(tmp_path: Path) -> None:
    # A failover may take it back.
    async with running(tmp_path) as group:
        await sent(group)
        confirmed = group.app.store.max_offset
        group.sidecar.automatic = False
        sending = asyncio.create_task(group.send())
        await group.sidecar.receive(Appended, lambda message: message.max_offset > confirmed)
        view = RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, ext_fields={"offset": str(confirmed)})
        for asked in (view, back(confirmed)):
            assert (await group.call(asked)).code == ResponseCode.SYSTEM_ERROR
        assert group.app.store.next_queue_offset("%RETRY%G", 0) == 0
        group.sidecar.acknowledge(group.app.store.max_offset)
        await sending
        assert (await group.call(view)).code == ResponseCode.SUCCESS


async def test_a_strict_master_takes_back_and_delivers_without_a_lease(tmp_path: Path) -> None:
    async with running(tmp_path, master=False, messageDelayLevel=QUICK) as group:
        await group.sidecar.make_master(lease=0.0)
        offset = await sent(group)
        assert (await group.call(back(offset))).code == ResponseCode.SUCCESS
        await group.send(b"late", properties=with_delay("2"), queue_id=1)
        assert (await group.pull(0, queue_id=1, suspend_ms=15_000)).code == ResponseCode.SUCCESS


async def test_delayed_messages_are_delivered_in_order(tmp_path: Path) -> None:
    async with running(tmp_path, messageDelayLevel=QUICK) as group:
        for number in range(100):
            await group.send(b"%d" % number, properties=with_delay("2"), queue_id=1)
        assert (await group.pull(0, queue_id=1)).code == ResponseCode.PULL_NOT_FOUND
        offset = 0
        bodies: list[int] = []
        while len(bodies) < 100:
            answer = await group.pull(offset, queue_id=1, suspend_ms=15_000)
            assert answer.code == ResponseCode.SUCCESS
            offset = int((answer.ext_fields or {})["nextBeginOffset"])
            position = 0
            while position < len(answer.body):
                record = read_record(answer.body, position, len(answer.body), check_crc=True)
                assert isinstance(record, Record)
                bodies.append(int(bytes(record.body(answer.body))))
                position += record.size
        assert bodies == list(range(100))
    file = decode_config(DelayOffsetsFile, (tmp_path / "config" / "delayOffset.json").read_bytes())
    assert file.offset_table == {2: 100}
    async with running(tmp_path, messageDelayLevel=QUICK) as group:
        assert group.app.store.queue_bounds("T", 1) == (0, 100)
        await group.send(b"later", properties=with_delay("2"), queue_id=1)
        assert (await pulled(group, "T", 100, queue_id=1))[1] == b"later"


async def test_zeros_in_properties_that_an_official_master_accepted_stop_no_message(tmp_path: Path) -> None:
    """This broker refuses such messages; those that came by replication are delivered and retried without the zeros."""
    properties = "UNIQ_KEY\x01u\x02K\x01a%sb\x02" % ("\x03" * 600)

    async def with_zeros(group: Group, **fields: object) -> int:
        before = group.app.store.max_offset
        await group.send(b"odd", **fields)
        record = group.app.store.files.read(before, group.app.store.max_offset - before)
        at = bytes(record).index(b"\x03" * 600)
        record[at : at + 600] = bytes(600)
        return before

    async with running(tmp_path, messageDelayLevel=QUICK) as group:
        offset = await with_zeros(group, properties=properties)
        assert (await pulled(group, "T"))[1] == b"odd"
        assert (await group.call(back(offset, delay_level=1))).code == ResponseCode.SUCCESS
        record, body = await pulled(group, "%RETRY%G")
        assert (body, parse_properties(record.properties)["K"]) == (b"odd", "ab")
        await with_zeros(group, topic="U", properties=properties + "DELAY\x011\x02")
        record, body = await pulled(group, "U")
        assert (body, parse_properties(record.properties)["K"]) == (b"odd", "ab")


async def test_a_smaller_largest_message_stops_none_that_was_acknowledged(tmp_path: Path) -> None:
    body = b"x" * 300_000
    async with running(tmp_path, messageDelayLevel="1s 1h", maxMessageSize=400_000) as group:
        offset = await sent(group, body=body, topic="U")
        await sent(group, body=body, properties=with_delay("1"))
    async with running(tmp_path, messageDelayLevel="1s 1h", maxMessageSize=100_000) as group:
        assert (await group.send(body)).code == ResponseCode.MESSAGE_ILLEGAL
        assert (await pulled(group, "T"))[1] == body
        assert (await group.call(back(offset, delay_level=1))).code == ResponseCode.SUCCESS
        assert (await pulled(group, "%RETRY%G"))[1] == body
        assert (await group.call(back(offset, delay_level=-1))).code == ResponseCode.SUCCESS
        assert (await pulled(group, "%DLQ%G"))[1] == body


async def test_a_delay_level_waits_for_what_cannot_be_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay_service, "STUCK_SECONDS", 0.01)
    async with running(tmp_path, messageDelayLevel="1s") as group:
        real, failures = group.app.store.append, iter([MessageIllegalError("too long for a file")] * 2)

        def append(draft: Draft, now_ms: int, *, again: bool = False) -> Stored:
            for failure in failures if again else ():
                raise failure
            return real(draft, now_ms, again=again)

        monkeypatch.setattr(group.app.store, "append", append)
        await group.send(b"first", properties=with_delay("1"))
        await group.send(b"second", properties=with_delay("1"))
        assert [(await pulled(group, "T", offset))[1] for offset in (0, 1)] == [b"first", b"second"]
        assert next(failures, None) is None
        assert group.app.core.traffic.counts.delayed_passed_over == 0


async def test_a_delayed_message_for_no_possible_queue_is_passed_over_and_counted(tmp_path: Path) -> None:
    async with running(tmp_path, messageDelayLevel="1s") as group:
        for topic in ("a/b", "T"):
            properties = f"DELAY\x011\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02".encode()
            made = Draft(topic=SCHEDULE_TOPIC.encode(), queue_id=0, body=topic.encode(), properties=properties)
            group.app.store.append(made, 1)
        await group.send()
        assert (await pulled(group, "T", 1))[1] == b"T"
        assert group.app.core.traffic.counts.delayed_passed_over == 1


async def test_copies_that_are_not_confirmed_do_not_count(tmp_path: Path) -> None:
    async with running(tmp_path, messageDelayLevel=QUICK) as group:
        await group.send(b"late", properties=with_delay("1"))
        confirmed = group.app.store.confirm_offset
        group.sidecar.automatic = False
        await group.sidecar.receive(Appended, lambda message: message.max_offset > confirmed)
        group.app.tables.settle_delays()
        assert group.app.tables.delays.table.get(1, 0) == 0
        group.sidecar.acknowledge(group.app.store.max_offset)
        assert (await pulled(group, "T"))[1] == b"late"
        group.app.tables.settle_delays()
        assert group.app.tables.delays.table == {1: 1}


async def test_a_delay_that_is_none_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        for bad in ("x", "1.5", "9" * 11, "1_0"):
            answer = await group.send(properties=with_delay(bad))
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        for none in ("0", "-3"):
            assert (await group.send(properties=with_delay(none))).code == ResponseCode.SUCCESS


def test_where_a_failed_message_goes() -> None:
    def goes(reconsume_times: int, level: int) -> Retry:
        return retry_of("G", reconsume_times, wanted_level=level, longest=16, levels=18)

    assert goes(0, 0) == Retry("%RETRY%G", 3)
    assert goes(15, 0) == Retry("%RETRY%G", 18)
    assert goes(4, 5) == Retry("%RETRY%G", 5)
    assert goes(16, 0) == goes(0, -1) == Retry("%DLQ%G", 0)
    kept = retry_properties({"RETRY_TOPIC": "T0"}, goes(1, 0), topic="%RETRY%G", queue_id=2, message_id="M")
    assert kept == {
        "RETRY_TOPIC": "T0",
        "ORIGIN_MESSAGE_ID": "M",
        "DELAY": "4",
        "REAL_TOPIC": "%RETRY%G",
        "REAL_QID": "2",
    }


def test_progress_of_a_level() -> None:
    progress = LevelProgress(5)
    progress.passed_over(7)
    assert (progress.next, progress.settled) == (7, 7)
    progress.delivered(1000)
    progress.delivered(2000)
    progress.passed_over(10)
    assert progress.settle(1999) == 8
    assert progress.settle(2000) == 10


@pytest.mark.parametrize(("count", "queues", "comes_again"), [(-1, 1, False), (100_000, 65_536, True)])
async def test_any_number_of_retry_queues_can_be_set(
    tmp_path: Path, count: int, queues: int, comes_again: bool
) -> None:
    """As in Java, where a message that is sent back to less than one queue is not delivered again."""
    async with running(tmp_path, messageDelayLevel=QUICK) as group:
        body = encode_body(SubscriptionGroupConfig(group_name="G", retry_queue_nums=count))
        made = await group.call(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body))
        assert made.code == ResponseCode.SUCCESS, made.remark
        offset = await sent(group)
        end = group.app.core.store.max_offset
        assert (await group.call(back(offset))).code == ResponseCode.SUCCESS
        assert (group.app.core.store.max_offset > end) == comes_again
        heartbeat = HeartbeatData(client_id="c", consumer_data_set=(ConsumerData(group_name="G"),))
        await group.call(request(RequestCode.HEART_BEAT, None, encode_body(heartbeat)))
        retries = group.app.topics.get("%RETRY%G")
        assert retries is not None
        assert retries.read_queue_nums == queues
