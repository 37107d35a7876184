"""A group under full write load is verified over and over while its masters die, hang and are restarted and its oldest
files expire: no run may find a difference. In the end one is made, and has to be found.

Files are made to expire by their time of change, which is all that a broker goes by; it polls every 10 s.
"""

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from rocketmq_client.errors import ClientError
from rocketmq_client.producer import Producer
from rocketmq_demo.ports import PortPool
from rocketmq_runtime.remoting.client import RemotingError
from rocketmq_verify import job
from rocketmq_verify.domain.findings import Kind, Severity
from rocketmq_verify.domain.verdict import Result
from rocketmq_verify.engine.session import Engine
from rocketmq_verify.history.runs import Group as HistoryGroup
from rocketmq_verify.progress import NoProgress
from rocketmq_verify.run import EngineKind, Request, Run
from rocketmq_verify.sources.source import SourceOptions
from rocketmq_verify.sources.work import Place, parse_place
from tests.interop.verifying import Store, assert_names
from tests.processes.replica_group import TOPIC, Group, Member, group

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]

RUNS: Final = 30
FILE: Final = 8 << 20
KEPT: Final = 2
"""Files in front of what has been compared that do not expire."""
CONFIG: Final = {
    "mappedFileSizeCommitLog": FILE,
    "mappedFileSizeConsumeQueue": 20 * 2000,
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
    "fileReservedTime": 1,
    "logCheckBytesPerSecond": 0,  # what a replica finds itself it repairs, and no run would see it
}
QUIET: Final = 3
"""Runs between two blows."""
LANES: Final = 4
"""Sends in flight."""
MODES: Final = ("files", "sidecars", "mixed")
PATIENCE: Final = 2.0
"""Seconds that a sidecar may be silent."""
COMPARED: Final = "log compared with the master's", "the comparison of the log stopped early"
REPAIRED: Final = "damaged records of the log copied again from the master"
PATIENCE_FOR_AUDIT: Final = 60.0
TRIES: Final = 3


class Comparison(msgspec.Struct, frozen=True):
    """One run of the command."""

    mode: str
    began: float
    ended: float
    run: Run

    def __str__(self) -> str:
        said, took = self.run.verdict, self.run.timings
        parts = ", ".join(f"{key} {getattr(took, key):.1f}" for key in ("states", "scan", "structure", "queues"))
        return (
            f"{self.mode:<9}{'full' if said.full else '':<5}{self.ended - self.began:5.1f} s ({parts}) "
            f"new {said.new_bytes / 1e6:.1f} MB, old {said.old_bytes / 1e6:.1f} MB, moved {said.moved}: {said.summary}"
        )


class Live:
    """The group, who is down, and the runs so far."""

    def __init__(self, replicas: Group, engine: Engine, history: Path) -> None:
        self.replicas, self._engine, self._history = replicas, engine, history
        self.comparisons: list[Comparison] = []
        self.troubles: list[tuple[str, str, float, float]] = []
        """What was done to whom, from when until all were in sync again."""
        self.sent = 0
        self.enough = False

    def places(self, mode: str) -> tuple[Place, ...]:
        found = []
        for number, member in enumerate(self.replicas.members):
            by_files = mode == "files" or (mode == "mixed" and number % 2 == 0)
            where = f"{member.replica.folder}/store" if by_files else f"sidecar:{member.client.address}"
            found.append(parse_place(f"{member.replica.label}={where}"))
        return tuple(found)

    async def compare(self, mode: str, *, full: bool = False) -> Comparison:
        asked = Request(
            group=HistoryGroup("C", "broker-a"),
            places=self.places(mode),
            options=SourceOptions(patience=PATIENCE),
            chunk_size=256 << 10,
            reread_ms=300_000,
            full=full,
            history_path=str(self._history),
            engine=EngineKind.SPARK,
        )
        began = time.monotonic()
        run = await asyncio.to_thread(job.run, asked, self._engine, NoProgress())
        self.comparisons.append(Comparison(mode, began, time.monotonic(), run))
        print(f"{len(self.comparisons):>2} {self.comparisons[-1]}")
        return self.comparisons[-1]

    @contextlib.contextmanager
    def trouble(self, what: str, member: Member) -> Iterator[None]:
        began = time.monotonic()
        self.troubles.append((what, member.replica.label, began, float("inf")))
        try:
            yield
        finally:
            self.troubles[-1] = (what, member.replica.label, began, time.monotonic())

    def was_down(self, replica: str, comparison: Comparison) -> bool:
        return any(
            whose == replica and began < comparison.ended and ended > comparison.began
            for _, whose, began, ended in self.troubles
        )

    async def kill_master(self) -> None:
        master = await self.replicas.settled()
        with self.trouble("kill -9", master):
            master.kill()
            await self.more(200)
            master.start_again()
            await self.replicas.settled()

    async def hang_master(self) -> None:
        master = await self.replicas.settled()
        with self.trouble("SIGSTOP", master):
            master.replica.process.suspend()
            try:
                await self.more(200)
            finally:
                master.replica.process.resume()
            await self.replicas.settled()

    async def restart_all(self) -> None:
        for member in self.replicas.members:
            await self.replicas.settled()
            await self.restart(member)

    async def restart(self, member: Member) -> None:
        with self.trouble("restart", member):
            await asyncio.to_thread(member.replica.process.stop)
            member.start_again()
            await self.replicas.settled()

    async def break_on(self) -> None:
        """One blow after another, each healed, until it is `enough`."""
        for blow in itertools.cycle((self.kill_master, self.hang_master, self.restart_all)):
            await blow()
            quiet = len(self.comparisons) + QUIET
            while len(self.comparisons) < quiet:
                if self.enough:
                    return
                await asyncio.sleep(0.05)

    async def expire(self) -> None:
        """Make files old that were compared some time ago, over and over."""
        while True:
            old = (self.aligned_up_to // FILE - KEPT) * FILE
            long_ago = time.time() - 2 * 3600
            for member in self.replicas.members:
                for file in (member.replica.folder / "store" / "commitlog").iterdir():
                    if int(file.name) < old:
                        with contextlib.suppress(FileNotFoundError):
                            os.utime(file, (long_ago, long_ago))
            await asyncio.sleep(1)

    @property
    def aligned_up_to(self) -> int:
        """As the last run says that could tell."""
        told = (comparison.run.verdict.aligned_up_to for comparison in reversed(self.comparisons))
        return next((up_to for up_to in told if up_to is not None), 0)

    async def more(self, count: int) -> None:
        """Until so many more sends were acknowledged."""
        wanted = self.sent + count
        while self.sent < wanted:
            await asyncio.sleep(0.02)

    async def send_on(self, producer: Producer) -> None:
        for number in itertools.count():
            try:
                result = await producer.send(TOPIC, b"%d " % number + b"x" * (number * 37 % 2000))
            except (ClientError, RemotingError):
                await asyncio.sleep(0.01)
                continue
            self.sent += result.acknowledged


@contextlib.asynccontextmanager
async def at_work(*coroutines: Coroutine[None, None, None]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Tasks that run until the block ends; one that fails fails the test."""
    tasks = [asyncio.create_task(one) for one in coroutines]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended


async def test_no_false_alarm_in_thirty_runs(engine: Engine, tmp_path: Path, ports: PortPool) -> None:
    async with group(tmp_path / "group", ports, config=CONFIG) as replicas:
        await replicas.settled()
        live = Live(replicas, engine, tmp_path / "history")
        producer = Producer([replicas.name_server], group="P", attempts=1, timeout=2.0)
        async with producer, at_work(*(live.send_on(producer) for _ in range(LANES))):
            await live.more(1000)
            async with at_work(live.break_on(), live.expire()) as tasks:
                for number, mode in zip(range(RUNS), itertools.cycle(MODES), strict=False):
                    judge(live, await live.compare(mode, full=number % 10 == 9))
                    assert not any(task.done() for task in tasks)
                live.enough = True
                await tasks[0]
            all_was_there(live)
            await find_one_byte(live)


def all_was_there(live: Live) -> None:
    """What could have made an alarm."""
    print(f"{live.sent} sent, {len(live.troubles)} troubles")
    said = [comparison.run.verdict for comparison in live.comparisons]
    reached = [one.aligned_up_to for one in said if one.aligned_up_to is not None]
    assert reached[-1] - reached[0] > 4 * FILE
    assert {what for what, *_ in live.troubles} == {"kill -9", "SIGSTOP", "restart"}
    assert max(replica.min_offset for replica in said[-1].replicas) > 0
    assert sum(one.old_bytes > 0 for one in said) > RUNS // 2
    assert sum(one.full for one in said) == RUNS // 10
    assert sum(one.result is Result.ALIGNED for one in said) > RUNS // 2


async def find_one_byte(live: Live) -> None:
    """While the group writes, in a slave: by its files, again by its sidecar because the place is suspected, and no
    longer after the repair."""
    member = live.replicas.others(await live.replicas.settled())[0]
    await live.restart(member)  # a replica that stopped cleanly does not read its last files again
    slave = member.replica
    store = Store(slave.folder / "store")
    for _ in range(TRIES):
        await compared_with_master(member)
        repairs = slave.process.sidecar.output().count(REPAIRED)
        kept = (live.aligned_up_to // FILE - KEPT) * FILE
        message = store.messages(TOPIC, files_from=kept, below=live.aligned_up_to)[-10]
        at = message.physical_offset + message.body_start - message.position
        store.flip(at)
        found = [await live.compare("files", full=True), await live.compare("sidecars")]
        if slave.process.sidecar.output().count(REPAIRED) == repairs:
            break  # else it connected again, and found the byte before the runs did
    else:
        raise AssertionError(f"{slave.label} repaired {TRIES} bytes before they were found")
    store.flip(at)
    for comparison in found:
        (finding,) = (one for one in comparison.run.findings if one.severity is Severity.MISMATCH)
        assert (finding.kind, finding.replicas, finding.first_difference) == (Kind.CORRUPT_RECORD, (slave.label,), at)
        assert_names(finding.record, message)
    judge(live, await live.compare("mixed"))


async def compared_with_master(member: Member) -> None:
    """Until a slave has compared its log with its master's, which it does once for each connection, and a repair ends
    a connection. A byte that differs before is copied again from the master."""

    def compared() -> bool:
        since = member.replica.process.sidecar.output().rpartition(REPAIRED)[2]
        return any(line in since for line in COMPARED)

    async with asyncio.timeout(PATIENCE_FOR_AUDIT):
        while not compared():
            await asyncio.sleep(0.1)


def judge(live: Live, comparison: Comparison) -> None:
    """No alarm; what could not be verified was down."""
    said = comparison.run.verdict
    assert not comparison.run.history_error
    bad = [one for one in comparison.run.findings if one.severity is Severity.MISMATCH]
    assert not bad, (str(comparison), bad)
    unread = {name for one in comparison.run.findings if one.kind is Kind.UNREACHABLE for name in one.replicas}
    assert all(live.was_down(name, comparison) for name in unread), (str(comparison), live.troubles)
    assert said.result is (Result.UNVERIFIED if unread else Result.ALIGNED), str(comparison)
