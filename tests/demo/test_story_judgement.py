"""What the story calls broken: it must not pass over a promise that was not kept."""

import asyncio
import time
from collections.abc import Callable, Sequence

import pytest

from rocketmq_demo.engines.engine import Acknowledgement, LoadResult, ReadResult
from rocketmq_demo.story.faults import FAULTS, Stage
from rocketmq_demo.story.observer import GroupView, ReplicaView
from rocketmq_demo.story.outcome import Outcome
from rocketmq_demo.story.story import Story
from rocketmq_demo.story.timeline import Kind, Timeline


class FakeBroker:
    label, address = "fake-1", "h:1"


class FakeLoad:
    def __init__(self, result: LoadResult, *, age: float = 0.0, failing: bool = False) -> None:
        self.result, self.age, self.failing = result, age, failing
        self.failed = 0

    async def start(self) -> None: ...

    def acknowledgements(self) -> Sequence[Acknowledgement]:
        now = time.monotonic() - self.age  # any speed
        return [Acknowledgement(now - 0.1, 0), Acknowledgement(now, 1)]

    def failures(self) -> int:
        self.failed += self.failing
        return self.failed

    async def finish(self) -> LoadResult:
        return self.result


class FakeReader:
    def __init__(self, result: ReadResult) -> None:
        self.result = result

    async def start(self) -> None: ...

    def times(self) -> Sequence[float]:
        return ()

    async def read_again(self) -> int:
        return 0

    async def finish(self) -> ReadResult:
        return self.result


class FakeEngine:
    name, remark, patience = "fake", "", 1.0
    brokers = (FakeBroker(),)

    def __init__(self, load: FakeLoad, reader: FakeReader | None) -> None:
        self.load, self.reader, self.delayed = load, reader, None

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

    def __init__(self, *ids: int) -> None:
        """The broker's id at each look at whole groups; the last one stays."""
        self.ids = list(ids)

    @property
    def group(self) -> GroupView:
        replica = ReplicaView(broker_id=self.ids[0], address="h:1", master=True, in_sync=True, alive=True)
        return GroupView(self.ids[0], 1, 1, (replica,))

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def wait(self, what: str, condition: Callable[[], bool], seconds: float) -> None:
        if what.startswith("all replicas") and not condition():
            raise TimeoutError(what)


async def outcome_of(
    load: FakeLoad,
    observer: FakeObserver | None = None,
    faults: Sequence[str] = (),
    reader: FakeReader | None = None,
) -> Outcome:
    stage = Stage(FakeEngine(load, reader), FakeControllers(), observer or FakeObserver(1), Timeline())
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


async def test_group_that_takes_no_more_writes_is_a_problem() -> None:
    outcome = await outcome_of(FakeLoad(LoadResult(acknowledged=2, failed=0), age=60.0))
    assert outcome.problems == ("the group does not acknowledge sends at the end",)


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
