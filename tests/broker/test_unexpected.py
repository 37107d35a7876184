"""Unexpected errors in the background: timers, tasks and callbacks continue, and pending requests get an answer."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import CapturingLogger

from rocketmq_broker import registration
from rocketmq_broker.consuming import delay_service as delay
from rocketmq_broker.replica import link
from rocketmq_broker.replica.link import SidecarLink
from rocketmq_broker.tables import table_file as persistence
from rocketmq_broker.tables.table_file import TableFile
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.replica_link import FromSidecar, Hello
from rocketmq_formats.topics import TopicConfig
from rocketmq_runtime.files.filesystem import DiskFullError, StorageError
from rocketmq_store.model import Appended, Draft, GetResult
from tests.broker.broker_kit import Group, pull_request, running
from tests.broker.fake_sidecar import FakeSidecar

DELAYED = "UNIQ_KEY\x01A\x02DELAY\x011\x02"


async def until_held(group: Group, count: int) -> None:
    """A round trip through the broker's loop each time."""
    while len(group.app.core.held) != count:
        await group.call(RemotingCommand(RequestCode.GET_MIN_OFFSET, ext_fields={"topic": "T", "queueId": "0"}))


@pytest.mark.parametrize("suspend_ms", [15_000, 100])
async def test_a_held_pull_that_cannot_be_read_is_answered_and_the_next_one_is_woken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suspend_ms: int
) -> None:
    async with running(tmp_path / "store") as group:
        await group.send()
        first, second = (
            asyncio.ensure_future(group.call(pull_request(1, suspend_ms=ms))) for ms in (suspend_ms, 15_000)
        )
        await until_held(group, 2)
        real = group.app.store.get
        failures = iter([OSError(5, "Input/output error")])

        def get(*args: object, **names: object) -> GetResult:
            for failure in failures:
                raise failure
            return real(*args, **names)  # type: ignore[arg-type]  # handed on as they are

        monkeypatch.setattr(group.app.store, "get", get)
        if suspend_ms == 100:
            assert (await first).code == ResponseCode.SYSTEM_ERROR
        await group.send()
        assert {(await first).code, (await second).code} == {ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS}
        assert "Input/output error" in ((await first).remark or "")
        assert len(group.app.core.held) == 0


async def test_a_delay_level_continues_after_a_disk_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay, "RETRY_SECONDS", 0.01)
    async with running(tmp_path / "store", messageDelayLevel="1s") as group:
        real = group.app.store.append
        failures = iter([OSError(5, "Input/output error")])

        def append(draft: Draft, now_ms: int, *, again: bool = False) -> Appended:
            for failure in failures if draft.topic == b"T" else ():
                raise failure
            return real(draft, now_ms, again=again)

        monkeypatch.setattr(group.app.store, "append", append)
        assert (await group.send(b"late", properties=DELAYED)).code == 0
        answer = await group.pull(0, suspend_ms=15_000)
        assert answer.code == ResponseCode.SUCCESS


async def test_a_table_that_found_no_room_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistence, "RETRY_SECONDS", 0.01)
    written = asyncio.Event()
    loop = asyncio.get_running_loop()
    failures = iter([DiskFullError(tmp_path, "no room")])

    def write(path: Path, data: bytes) -> None:
        for failure in failures:
            raise failure
        path.write_bytes(data)
        loop.call_soon_threadsafe(written.set)

    monkeypatch.setattr(persistence, "write_atomically", write)
    file = TableFile(tmp_path / "table.json", lambda: lambda: b"{}")
    file.changed()
    with pytest.raises(DiskFullError):
        await file.saved()
    await written.wait()
    await file.close()
    assert (tmp_path / "table.json").read_bytes() == b"{}"


async def test_a_full_disk_is_reported_once_not_once_per_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, said = True, CapturingLogger()

    def write(_path: Path, _data: bytes) -> None:
        if full:
            raise DiskFullError(tmp_path, "no room")

    monkeypatch.setattr(persistence, "write_atomically", write)
    monkeypatch.setattr(persistence, "log", said)
    file = TableFile(tmp_path / "table.json", lambda: lambda: b"{}")
    for _ in range(3):
        file.changed()
        with pytest.raises(DiskFullError):
            await file.saved()
    full = False
    file.changed()
    await file.saved()
    await file.close()
    assert [call.args for call in said.calls] == [
        ("table not written: free the disk or repair it",),
        ("table written again",),
    ]


async def test_a_table_that_found_no_room_is_tried_once_more_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def write(_path: Path, data: bytes) -> None:
        tries.append(data)
        raise DiskFullError(tmp_path, "no room")

    monkeypatch.setattr(persistence, "write_atomically", write)
    file = TableFile(tmp_path / "table.json", lambda: lambda: b"{}")
    file.changed()
    with pytest.raises(DiskFullError):
        await file.saved()
    await file.close()
    assert len(tries) == 2


async def test_a_table_is_not_saved_as_long_as_its_last_write_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = True

    def write(_path: Path, _data: bytes) -> None:
        if full:
            raise DiskFullError(tmp_path, "no room")

    monkeypatch.setattr(persistence, "write_atomically", write)
    file = TableFile(tmp_path / "table.json", lambda: lambda: b"{}")
    file.changed()
    for _ in range(3):  # a tool that asks again must not hear that it is done
        with pytest.raises(DiskFullError):
            await file.saved()
    full = False
    await file.saved()
    await file.close()


@pytest.mark.parametrize("where", ["in the loop", "in the thread"])
async def test_a_table_that_cannot_be_rendered_fails_those_that_wait(tmp_path: Path, where: str) -> None:
    def render() -> bytes:
        raise ValueError("a defect")

    def snapshot() -> Callable[[], bytes]:
        if where == "in the loop":
            render()
        return render

    file = TableFile(tmp_path / "table.json", snapshot)
    file.changed()
    with pytest.raises(StorageError, match="a defect"):
        await file.saved()
    await file.close()


async def test_tables_are_made_in_a_thread_from_what_they_were(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        loop_thread, threads = threading.get_ident(), set()
        real = group.app.core.topics_file._snapshot

        def snapshot() -> Callable[[], bytes]:
            render = real()
            if not texts:
                group.app.topics.put(TopicConfig(topic_name="After"), state_version=1, now_ms=1)

            def rendered() -> bytes:
                threads.add(threading.get_ident())
                texts.append(render())
                return texts[-1]

            return rendered

        texts: list[bytes] = []
        group.app.core.topics_file._snapshot = snapshot
        group.app.topics.put(TopicConfig(topic_name="Before"), state_version=1, now_ms=1)
        await group.app.core.topics_file.saved()
        await group.app.core.topics_file.saved()  # what came while the first was made
        assert [(b"Before" in text, b"After" in text) for text in texts] == [(True, False), (True, True)]
        assert loop_thread not in threads


async def test_the_offsets_go_on_being_saved_after_a_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path / "store", flushConsumerOffsetInterval=1) as group:
        calls = asyncio.Queue[int]()
        saved = group.app.tables.settle_delays
        reports: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reports.append(context))

        def again() -> None:
            calls.put_nowait(1)
            if calls.qsize() == 1:
                raise ValueError("a defect")

        group.app.tables.settle_delays = again
        group.app.tables._again(0.001, group.app.tables._save_delays)
        while calls.qsize() < 3:
            await asyncio.sleep(0)
        group.app.tables.settle_delays = saved
        assert len(reports) == 1


@pytest.mark.parametrize("names", ["T;" * 10_000, ";".join(f"U{n}" for n in range(3))])
async def test_one_question_does_not_take_the_broker_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: str
) -> None:
    async with running(tmp_path / "store") as group:
        await group.send()
        for number in range(3):
            create = {"topic": f"U{number}", "defaultTopic": "TBW102", "perm": "6", "order": "false"}
            counts = {"readQueueNums": "65536", "writeQueueNums": "65536", "topicFilterType": "SINGLE_TAG"}
            assert (await group.call(RemotingCommand(17, ext_fields={**create, **counts}))).code == 0
        looked: list[int] = []
        real = group.app.store.queue_bounds

        def queue_bounds(topic: str, queue_id: int) -> tuple[int, int]:
            looked.append(queue_id)
            return real(topic, queue_id)

        monkeypatch.setattr(group.app.store, "queue_bounds", queue_bounds)
        answer = await group.call(RemotingCommand(208, ext_fields={"consumerGroup": "G", "topicList": names}))
        if names.startswith("T"):
            assert (answer.code, len(looked)) == (0, 4)
        else:
            assert (answer.code, looked) == (ResponseCode.INVALID_PARAMETER, [])


@pytest.mark.parametrize("times", [-10, 2**31 - 1])
async def test_a_message_with_a_senseless_retry_count_still_becomes_a_dead_letter(tmp_path: Path, times: int) -> None:
    async with running(tmp_path / "store") as group:
        await group.send(reconsume_times=times)
        await group.pull(0)
        back = {"offset": "0", "group": "G", "delayLevel": "0"}
        answer = await group.call(RemotingCommand(36, ext_fields=back))
        assert (answer.code, answer.remark) == (0, None)


class FailingHandler:
    """A replica with a defect, then without one."""

    def __init__(self) -> None:
        self.hellos = 0

    async def hello(self) -> Hello:
        self.hellos += 1
        if self.hellos == 1:
            raise ValueError("a defect")
        return Hello(1, "C", "broker-a", "127.0.0.1:1", 0, 0, 0, 4096)

    def on_message(self, message: FromSidecar) -> None:
        pass

    def on_link_lost(self, reason: str) -> None:
        pass


async def test_the_link_is_tried_again_after_a_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "STABLE_SECONDS", 0.01)
    sidecar = FakeSidecar(tmp_path / "sidecar.sock")
    await sidecar.start()
    handler = FailingHandler()
    tried = SidecarLink(tmp_path / "sidecar.sock", handler)
    tried.start()
    await sidecar.receive(Hello)
    assert handler.hellos == 2
    await tried.stop()
    await sidecar.stop()


async def test_a_broker_is_registered_after_a_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "RETRY_SECONDS", 0.01)
    registered = asyncio.Event()
    calls: list[int] = []

    async def call(_address: str, command: RemotingCommand, *, timeout: float) -> RemotingCommand:
        calls.append(command.code)
        if len(calls) == 1:
            raise RuntimeError(f"a defect after {timeout} s")
        registered.set()
        return response(command, ResponseCode.SUCCESS)

    async with running(tmp_path / "store", namesrvAddr="127.0.0.1:1", master=False) as group:
        monkeypatch.setattr(group.app.core.client, "call", call)
        await group.sidecar.make_master()
        await registered.wait()
    assert calls[:2] == [RequestCode.REGISTER_BROKER] * 2
