"""Pulls through a whole broker: the statuses, long polling, slaves."""

import asyncio
from pathlib import Path

import pytest

from rocketmq_broker.replica import log_scrubber
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.replica_link import Following, Hello, Release, Welcome
from tests.broker.broker_kit import Group, running


def offsets(answer: RemotingCommand) -> tuple[int, int, int]:
    """next, min, max."""
    fields = answer.ext_fields or {}
    return int(fields["nextBeginOffset"]), int(fields["minOffset"]), int(fields["maxOffset"])


async def until_held(group: Group, count: int) -> None:
    """Every call is a round trip through the broker's loop, so what was sent before has been handled."""
    while len(group.app.core.held) != count:
        await group.call(RemotingCommand(RequestCode.GET_MIN_OFFSET, ext_fields={"topic": "T", "queueId": "0"}))


async def test_statuses(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        for _ in range(3):
            await group.send()
        found = await group.pull(0)
        assert (found.code, found.remark, offsets(found)) == (0, "FOUND", (3, 0, 3))
        end = await group.pull(3)
        assert (end.code, end.remark, end.body) == (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", b"")
        assert offsets(end)[0] == 3
        beyond = await group.pull(9)
        assert (beyond.code, beyond.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY")
        assert offsets(beyond)[0] == 3
        assert (await group.pull(0, queue_id=1)).code == ResponseCode.PULL_NOT_FOUND
        assert (await group.pull(5, queue_id=1)).code == ResponseCode.PULL_OFFSET_MOVED
        limited = await group.pull(0, max_msg_nums=2)
        assert offsets(limited)[0] == 2
        before = await group.pull(-1)
        assert (before.code, offsets(before)[0]) == (ResponseCode.PULL_OFFSET_MOVED, 0)
        for senseless in ({"max_msg_nums": -5}, {"max_msg_nums": 2**31 - 1}, {"max_msg_bytes": -1}):
            assert (await group.pull(0, **senseless)).code == 0


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 99}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": -1}, ResponseCode.INVALID_PARAMETER),
        ({"subscription": " || "}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"expression_type": "SQL92"}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_refused(tmp_path: Path, changes: dict[str, object], code: int) -> None:
    async with running(tmp_path / "store") as group:
        await group.send()
        assert (await group.pull(0, **changes)).code == code


async def test_tags(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        for tag in ("TagA", "TagB", "TagA"):
            await group.send(tag.encode(), properties=f"UNIQ_KEY\x01u\x02TAGS\x01{tag}\x02")
        found = await group.pull(0, subscription="TagB || TagC")
        assert (found.code, b"TagA" in found.body, b"TagB" in found.body) == (0, False, True)
        none = await group.pull(0, subscription="TagC")
        assert (none.code, offsets(none)[0]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 3)


async def test_a_held_pull_is_woken_by_a_message(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        await group.send()
        pulling = asyncio.ensure_future(group.pull(1, suspend_ms=60_000))
        await until_held(group, 1)
        await group.send(queue_id=1)
        assert not pulling.done()
        await group.send(b"news")
        answer = await pulling
        assert (answer.code, b"news" in answer.body) == (0, True)
        assert len(group.app.core.held) == 0


async def test_a_held_pull_does_not_wake_for_other_tags(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        await group.send()
        pulling = asyncio.ensure_future(group.pull(1, suspend_ms=60_000, subscription="TagB"))
        await until_held(group, 1)
        await group.send()
        await until_held(group, 1)
        assert not pulling.done()
        await group.send(b"news", properties="TAGS\x01TagB\x02")
        answer = await pulling
        assert (answer.code, offsets(answer)[0]) == (0, 3)


async def test_a_held_pull_ends_in_time(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        await group.send()
        answer = await group.pull(1, suspend_ms=50)
        assert (answer.code, offsets(answer)) == (ResponseCode.PULL_NOT_FOUND, (1, 0, 1))


async def test_a_closed_connection_holds_nothing(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        await group.send()
        pulling = asyncio.ensure_future(group.pull(1, suspend_ms=60_000))
        await until_held(group, 1)
        await group.client.close()
        await asyncio.gather(pulling, return_exceptions=True)
        while len(group.app.core.held):
            await asyncio.sleep(0)


async def test_slaves_send_consumers_away(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        await group.send()
        pulling = asyncio.ensure_future(group.pull(1, suspend_ms=60_000))
        await until_held(group, 1)
        group.sidecar.send(Release())
        group.sidecar.send(Following(2, 2, "127.0.0.1:1"))
        assert (await pulling).code == ResponseCode.SYSTEM_BUSY
        assert (await group.pull(0)).code == ResponseCode.SYSTEM_BUSY
        assert (await group.send()).code == ResponseCode.SYSTEM_BUSY


async def test_slaves_that_may_be_read(tmp_path: Path) -> None:
    async with running(tmp_path / "store", slaveReadEnable=True) as group:
        await group.send()
        group.sidecar.send(Release())
        group.sidecar.send(Following(2, 2, "127.0.0.1:1"))
        assert (await group.pull(0)).code == 0
        end = await group.pull(7)
        assert (end.code, offsets(end)[0]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 7)


async def test_queries(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        for _ in range(3):
            await group.send()

        async def ask(code: int, **fields: str) -> RemotingCommand:
            return await group.call(RemotingCommand(code, ext_fields={"topic": "T", "queueId": "0", **fields}))

        for code, fields, offset in [
            (RequestCode.GET_MAX_OFFSET, {}, "3"),
            (RequestCode.GET_MIN_OFFSET, {}, "0"),
            (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": "0"}, "0"),
            (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": str(2**62)}, "3"),
        ]:
            assert ((await ask(code, **fields)).ext_fields or {})["offset"] == offset
        time = await ask(RequestCode.GET_EARLIEST_MSG_STORETIME)
        assert int((time.ext_fields or {})["timestamp"]) > 1_700_000_000_000
        missing = await group.call(RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, ext_fields={"offset": "5"}))
        assert missing.code == ResponseCode.SYSTEM_ERROR


async def test_a_broker_without_a_role_answers_readers(tmp_path: Path) -> None:
    async with running(tmp_path / "store", master=False) as group:
        await group.sidecar.receive(Hello)
        group.sidecar.send(Welcome(1))
        assert (await group.pull(0)).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await group.send()).code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_held_pull_is_woken_when_the_unit_of_its_message_was_repaired(tmp_path: Path) -> None:
    async with running(tmp_path / "store", logCheckBytesPerSecond=0) as group:
        await group.send(queue_id=1)
        for number in range(3):
            await group.send(b"number %d" % number)
        path = tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020}"
        with path.open("r+b") as file:
            file.write(bytes(20))  # without one before it, only a reading of the log finds it
        found = await group.pull(0, suspend_ms=60_000)
        assert (found.code, found.remark, offsets(found)) == (0, "FOUND", (3, 0, 3))
        assert b"number 0" in found.body


async def test_a_tag_finds_its_message_again_after_its_unit_was_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_scrubber, "REST_SECONDS", 0.0)
    async with running(tmp_path / "store", logCheckBytesPerSecond=2**31 - 1) as group:
        for tag in ("TagA", "TagB", "TagA"):
            await group.send(tag.encode(), properties=f"UNIQ_KEY\x01u\x02TAGS\x01{tag}\x02")
        path = tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020}"
        content = path.read_bytes()
        with path.open("r+b") as file:
            file.seek(39)
            file.write(bytes([content[39] ^ 1]))
        async with asyncio.timeout(20):
            while (found := await group.pull(0, subscription="TagB")).code != 0:
                assert found.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert b"TagB" in found.body
        assert path.read_bytes() == content
        assert group.app.core.traffic.counts.units_repaired == 1
