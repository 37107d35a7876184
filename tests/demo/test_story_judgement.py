"""What the story calls broken: it must not pass over a promise that was not kept."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace

import pytest

from rocketmq_client.sending import SendResult
from rocketmq_demo.engines import native_load
from rocketmq_demo.engines.engine import MOMENT, Acknowledgement, DelayedResult, Load, LoadResult, ReadResult
from rocketmq_demo.engines.native_load import NativeLoad
from rocketmq_demo.story import faults
from rocketmq_demo.story.faults import FAULTS, PromiseBrokenError, Stage, kill_controllers_for
from rocketmq_demo.story.observer import GroupView, ReplicaView
from rocketmq_demo.story.outcome import Outcome
from rocketmq_demo.story.story import Story
from rocketmq_demo.story.timeline import Kind, Timeline
from rocketmq_runtime.remoting.client import CallTimeoutError


class FakeProcess:
    pid = 1

    def kill9(self) -> None: ...


class FakeBroker:
    label, address, process = "fake-1", "h:1", FakeProcess()

    def start(self) -> None: ...


class FakeLoad:
    def __init__(self, result: LoadResult, *, failing: bool = False) -> None:
        self.result, self.failing = result, failing
        self.failed = 0

    async def start(self) -> None: ...

    def acknowledgements(self) -> Sequence[Acknowledgement]:
        now = time.monotonic()  # any speed
        return [Acknowledgement(now - 0.1, 0), Acknowledgement(now, 1)]

    def failures(self) -> int:
        self.failed += self.failing
        return self.failed

    def patient(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def finish(self) -> LoadResult:
        return self.result


class FakeReader:
    def __init__(self, result: ReadResult, *again: int) -> None:
        """`again`: how many messages another consumer gets each time that it reads; then none."""
        self.result, self.again = result, list(again)

    async def start(self) -> None: ...

    def times(self) -> Sequence[float]:
        return ()

    async def read_again(self) -> int:
        return self.again.pop(0) if self.again else 0

    async def finish(self) -> ReadResult:
        return self.result


class FakeDelayed:
    def __init__(self, *delivered: int) -> None:
        """`delivered`: what has come each time that a consumer reads; the last one stays."""
        self.counts = list(delivered)

    async def start(self) -> None: ...

    async def send(self) -> None: ...

    async def delivered(self) -> DelayedResult:
        count = self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]
        return DelayedResult(sent=20, delivered=count, early=0)


class FakeEngine:
    name, remark = "fake", ""
    brokers = (FakeBroker(),)

    def __init__(self, load: Load, reader: FakeReader | None, delayed: FakeDelayed | None, patience: float) -> None:
        self.load, self.reader, self.delayed, self.patience = load, reader, delayed, patience

    def start(self) -> None: ...


class FakeControllers:
    def __init__(self) -> None:
        self.ports = {"n0": 1}
        self.processes: dict[str, object] = {}

    def start(self) -> None: ...

    def wait_ready(self, timeout: float) -> str:
        return "n0"


class FakeObserver:
    group_seen_at = float("inf")

    def __init__(self, *ids: int, ends: bool = False) -> None:
        """The broker's id at each look at whole groups; the last one stays. `ends`: only the first wait for sends ends
        well."""
        self.ids = list(ids)
        self.ends, self.sends_seen = ends, 0

    @property
    def group(self) -> GroupView:
        replica = ReplicaView(broker_id=self.ids[0], address="h:1", master=True, in_sync=True, alive=True)
        return GroupView(self.ids[0], 1, 1, (replica,))

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def wait(self, what: str, condition: Callable[[], bool], seconds: float) -> None:
        if what.startswith("all replicas") and not condition():
            raise TimeoutError(what)
        if what == "acknowledged sends":
            self.sends_seen += 1
            if self.ends and self.sends_seen > 1:
                raise TimeoutError(what)


async def outcome_of(
    load: FakeLoad,
    observer: FakeObserver | None = None,
    faults: Sequence[str] = (),
    *,
    reader: FakeReader | None = None,
    delayed: FakeDelayed | None = None,
    patience: float = 60.0,
) -> Outcome:
    stage = Stage(
        FakeEngine(load, reader, delayed, patience), FakeControllers(), observer or FakeObserver(1), Timeline()
    )
    return await Story(stage, faults=faults, quiet=0).run("folder")


async def test_all_is_well() -> None:
    outcome = await outcome_of(FakeLoad(LoadResult(acknowledged=2, failed=0, read_back=2, lost=0, duplicated=0)))
    assert outcome.problems == ()


async def test_lost_messages_are_a_problem() -> None:
    outcome = await outcome_of(FakeLoad(LoadResult(acknowledged=2, failed=0, read_back=1, lost=1, duplicated=0)))
    assert outcome.problems == ("1 acknowledged messages are lost",)
    assert outcome.timeline[-1].kind is Kind.TROUBLE


async def test_duplicated_messages_are_a_problem() -> None:
    outcome = await outcome_of(FakeLoad(LoadResult(acknowledged=2, failed=0, read_back=2, lost=0, duplicated=1)))
    assert outcome.problems == ("1 messages are stored more than once",)


async def test_offsets_that_went_back_are_a_problem() -> None:
    reader = FakeReader(ReadResult(messages=2, rolled_back=1, problems=("a consumer failed",)))
    outcome = await outcome_of(FakeLoad(LoadResult(acknowledged=2, failed=0)), reader=reader)
    assert outcome.problems == ("a consumer failed", "1 committed offsets have gone back")
    assert outcome.reads == reader.result


async def test_sends_that_fail_without_controllers_are_a_problem() -> None:
    load = FakeLoad(LoadResult(acknowledged=2, failed=0), failing=True)
    outcome = await outcome_of(load, faults=["kill-controllers-for-0s"])
    assert outcome.problems[0].startswith("without controllers 1 sends failed")
    assert (await outcome_of(FakeLoad(load.result), faults=["kill-controllers-for-0s"])).problems == ()


class SlowProducer:
    """Each send is answered after `seconds`, in virtual time."""

    seconds = 0.0

    def __init__(self, nameservers: Sequence[str], *, group: str, attempts: int, timeout: float) -> None:
        self._timeout = timeout

    def start(self) -> None: ...

    async def send(self, topic: str, body: bytes) -> SendResult:
        await asyncio.sleep(min(self.seconds, self._timeout))
        if self.seconds > self._timeout:
            raise CallTimeoutError("no answer")
        return SendResult(0, "", "", "broker-a", 0, 0, "h:1", 1)


async def away_with_sends_of(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault, while each send takes as long as that."""
    monkeypatch.setattr(faults, "time", SimpleNamespace(monotonic=asyncio.get_running_loop().time))
    monkeypatch.setattr(SlowProducer, "seconds", seconds)
    monkeypatch.setattr(native_load, "Producer", SlowProducer)
    load = NativeLoad(nameservers=[])
    stage = Stage(FakeEngine(load, None, None, patience=60.0), FakeControllers(), FakeObserver(1), Timeline())
    await load.start()
    await kill_controllers_for(stage, seconds=10)


@pytest.mark.looptime
async def test_slow_send_without_controllers_is_none_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    await away_with_sends_of(0.9 * MOMENT, monkeypatch)


@pytest.mark.looptime
async def test_send_that_takes_longer_than_a_moment_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PromiseBrokenError, match=r"without controllers [1-9]\d* sends failed"):
        await away_with_sends_of(1.1 * MOMENT, monkeypatch)


async def test_group_that_takes_no_more_writes_is_a_problem() -> None:
    outcome = await outcome_of(FakeLoad(LoadResult(acknowledged=2, failed=0)), FakeObserver(1, ends=True))
    assert outcome.problems == ("the group does not acknowledge sends at the end: acknowledged sends",)


@pytest.fixture
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The story does not rest where nothing is waited for."""
    monkeypatch.setattr(faults, "MOMENT", 0.0)
    monkeypatch.setattr(faults, "WITHOUT_MASTER", 0.0)


async def without_master(reader: FakeReader, delayed: FakeDelayed, patience: float) -> Outcome:
    load = FakeLoad(LoadResult(acknowledged=2, failed=0))
    return await outcome_of(load, faults=["lose-quorum-and-master"], reader=reader, delayed=delayed, patience=patience)


@pytest.mark.usefixtures("no_rest")
async def test_group_without_a_master_has_time_to_notice() -> None:
    read = ReadResult(messages=2, rolled_back=0)
    outcome = await without_master(FakeReader(read, 0, 7), FakeDelayed(0, 19, 20), patience=60.0)
    assert outcome.problems == ()
    texts = [entry.text for entry in outcome.timeline]
    assert "no master: another consumer gets 7 messages" in texts
    assert "20 of 20 delayed messages were delivered without a master" in texts


@pytest.mark.usefixtures("no_rest")
@pytest.mark.parametrize(
    ("again", "delivered", "problem"),
    [
        (0, 20, "consumers got nothing without a master"),
        (7, 19, "19 of 20 delayed messages came without a master, 0 of them too early"),
    ],
)
async def test_what_never_comes_without_a_master_is_a_problem(again: int, delivered: int, problem: str) -> None:
    reader = FakeReader(ReadResult(messages=2, rolled_back=0), *[again] * 9)
    outcome = await without_master(reader, FakeDelayed(delivered), patience=0.0)
    assert outcome.problems == (problem,)


async def test_changed_id_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    observer = FakeObserver(1)

    async def swap(stage: Stage) -> tuple[str, Callable[[], object]]:
        async def heal() -> None:
            observer.ids = [2]

        return "fake-1", heal

    monkeypatch.setitem(FAULTS, "swap", swap)
    outcome = await outcome_of(FakeLoad(LoadResult(acknowledged=2, failed=0)), observer, ["swap"])
    assert outcome.problems == ("swap: broker ids were {'fake-1': 1} and are {'fake-1': 2}",)
    assert not outcome.faults[0].ids_kept
