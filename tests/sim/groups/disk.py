"""What a simulated replica has on disk, shared by its two halves: the commit log's files with what was synced of them,
the writer lock, checkpoint and consume queues, and the small files on a `SimDisk`.

The store on top is the real one (`rocketmq_store`); only what touches the operating system is replaced.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, cast

from rocketmq_formats.store.checkpoint import SIZE, decode_checkpoint
from rocketmq_formats.store.given_up import FILE_NAME as GIVEN_UP
from rocketmq_formats.store.given_up import GivenUp, decode_given_up
from rocketmq_formats.store.queue_ends import QueueEnds
from rocketmq_store.checkpoint import _JAVA_SIZE, _MAGIC, _OURS, _OURS_AT, CheckpointFile, _crc
from rocketmq_store.errors import WriterLockHeldError
from rocketmq_store.log.segment import Segment
from rocketmq_store.log.segments import MappedFiles
from rocketmq_store.message_store import MessageStore
from rocketmq_store.queues.consume_queues import ConsumeQueues
from rocketmq_store.queues.queue_ends import QueueEndsFile
from rocketmq_store.root_files import RootFiles
from rocketmq_store.writer_lock import WriterLock
from tests.sim.checks import Violation
from tests.sim.disk import SimDisk
from tests.sim.groups.loop import Process

PAGE = 64
"""Bytes that reach the disk together."""
ROOT = Path("/")
"""Exists everywhere; nothing is written to it."""


class SimSegment:
    """As `segment.Segment`, in memory."""

    def __init__(self, disk: "ReplicaDisk", start: int, size: int) -> None:
        self.disk, self.start, self.size = disk, start, size
        self.image = bytearray(size)
        self.durable = bytearray(size)
        self.view = memoryview(self.image)
        self.fd = -1

    @property
    def end(self) -> int:
        return self.start + self.size

    def allocate(self) -> None:
        pass

    def has_data(self, position: int, limit: int) -> bool:
        return any(self.image[position:limit])

    def rewrite(self, position: int, limit: int, check: Callable[[], None]) -> None:
        pass

    def zero_from(self, position: int) -> None:
        self.image[position:] = bytes(self.size - position)
        self.sync()
        self.disk.changed(self.start + position)

    def sync(self) -> None:
        self.durable[:] = self.image

    def power_cut(self, rng: Random) -> None:
        """Of what was not synced any page may be there or not, mostly a prefix."""
        image, durable = self.image, self.durable
        if image == durable:
            return
        torn = rng.random() < 0.5
        survive = rng.randrange(0, self.size // PAGE + 1)
        for number, position in enumerate(range(0, self.size, PAGE)):
            kept = rng.random() < 0.5 if torn else number < survive
            if not kept:
                image[position : position + PAGE] = durable[position : position + PAGE]
        self.disk.changed(self.start)
        durable[:] = image


class ReplicaDisk:
    """One replica's volume: survives its processes, loses what was not synced with the power."""

    def __init__(self, file_size: int) -> None:
        self.file_size = file_size
        self.small = SimDisk()
        self.segments: dict[int, SimSegment] = {}
        self.checkpoint = bytearray(SIZE)
        self.durable_checkpoint = bytearray(SIZE)
        self.queues: dict[tuple[bytes, int], SimQueue] = {}
        self.aborted = False
        self.boots = 0
        self.acked = 0
        """What `.broker.acked` says."""
        self.lock_holder: SimWriterLock | None = None
        self.lowest_change: int | None = None
        """Where the log was changed other than by appending, since the checker looked."""

    @property
    def given_up(self) -> tuple[GivenUp, ...]:
        """What `.log.given-up` says."""
        data = next((data for path, data in self.small.files().items() if path.name == GIVEN_UP), None)
        return () if data is None else decode_given_up(data).given_up

    def changed(self, offset: int) -> None:
        self.lowest_change = offset if self.lowest_change is None else min(offset, self.lowest_change)

    def power_cut(self, rng: Random) -> None:
        self.boots += 1
        for segment in self.segments.values():
            segment.power_cut(rng)
        if rng.random() < 0.5:
            self.checkpoint[:] = self.durable_checkpoint
        self.durable_checkpoint[:] = self.checkpoint
        trusted = _OURS.unpack_from(self.checkpoint, _OURS_AT)[1]
        for queue in self.queues.values():
            queue.power_cut(rng, trusted)
        self.small.crash(rng)

    def empty(self, keep: set[str]) -> None:
        """Remove everything except the small files with these names; nothing of the replica runs."""
        self.segments.clear()
        self.queues.clear()
        self.checkpoint[:] = self.durable_checkpoint[:] = bytes(len(self.checkpoint))
        self.aborted = False
        self.acked = 0
        for path in self.small.files():
            if path.name not in keep:
                self.small.remove(path)
        self.changed(0)

    def log(self, start: int, end: int) -> bytes:
        """Bytes of the log as the processes see them."""
        parts = []
        while start < end:
            base = start - start % self.file_size
            segment = self.segments.get(base)
            stop = min(end, base + self.file_size)
            parts.append(bytes(stop - start) if segment is None else bytes(segment.image[start - base : stop - base]))
            start = stop
        return b"".join(parts)


class SimWriterLock(WriterLock):
    """An flock between the two halves."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._process = here()
        self._disk = self._process.disk
        self._process.on_kill.append(self._kernel)
        self._held = False

    @property
    def held(self) -> bool:
        return self._held

    def acquire(self) -> None:
        if self._held:
            return
        if self._disk.lock_holder is not None:
            raise WriterLockHeldError(f"{self._disk.lock_holder} holds the lock")
        self._disk.lock_holder, self._held = self, True

    def release(self) -> None:
        if self._held:
            self._held = False
            self._disk.lock_holder = None

    def require(self) -> None:
        if self._held and self._disk.lock_holder is not self:
            raise Violation(f"OneWriter: {self._process.name} writes to a log that is locked by another")
        if not self._held:
            self._fd = None
            super().require()

    def _kernel(self) -> None:
        self.release()


class SimFiles(MappedFiles):
    """The real arithmetic on simulated files."""

    def __init__(self, directory: Path, file_size: int, *, writer: WriterLock) -> None:
        super().__init__(directory, file_size, writer=writer)
        self._disk = here().disk

    def load(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        self._segments = cast("list[Segment]", [one for _, one in sorted(self._disk.segments.items())])

    def _create(self, start: int) -> None:
        segment = self._disk.segments[start] = SimSegment(self._disk, start, self.file_size)
        self._segments = [*self._segments, cast("Segment", segment)]

    def truncate(self, offset: int) -> None:
        self._writer.require()
        keep = [segment for segment in self._segments if segment.start < offset]
        if not keep and self._segments and self._segments[0].start == offset:
            keep = self._segments[:1]
        for segment in reversed(self._segments[len(keep) :]):
            self._disk.segments.pop(segment.start, None)
            self._disk.changed(segment.start)
            self._segments.remove(segment)
        if keep:
            keep[-1].zero_from(max(0, offset - keep[-1].start))

    def copy(self, start: int, end: int, path: Path) -> None:
        pass

    def flusher(self, start: int, end: int) -> Callable[[], None]:
        segments = [segment for segment in self._segments if segment.end > start and segment.start < end]

        def flush() -> None:
            for segment in segments:
                cast("SimSegment", segment).sync()

        return flush


class SimCheckpoint(CheckpointFile):
    def open(self) -> None:
        process = here()
        self._disk = process.disk
        self._process = process
        self._map = cast("Any", process.disk.checkpoint)
        self.java = decode_checkpoint(bytes(process.disk.checkpoint))
        magic, recover_from, crc = _OURS.unpack_from(process.disk.checkpoint, _OURS_AT)
        if magic == _MAGIC and crc == _crc(bytes(process.disk.checkpoint[:_JAVA_SIZE]), recover_from):
            self.recover_from = recover_from

    def write(self, java: Any, recover_from: int) -> None:
        if self._process.alive:
            super().write(java, recover_from)

    def sync(self) -> None:
        self._disk.durable_checkpoint[:] = self._disk.checkpoint

    def close(self) -> None:
        self._map = None


class SimQueue:
    """A consume queue: where the messages are."""

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic, self.queue_id = topic, queue_id
        self.units: list[tuple[int, int]] = []
        self.min_offset = self.next_offset = 0
        self.dirty: set[Path] = set()
        self._pending: list[tuple[int, int]] = []

    @property
    def max_offset(self) -> int:
        return len(self.units)

    @property
    def max_physical(self) -> int:
        return self.units[-1][0] + self.units[-1][1] if self.units else 0

    def first_at(self, physical_offset: int, low: int, high: int) -> int:
        return next((n for n in range(low, high) if self.units[n][0] >= physical_offset), high)

    def unit(self, offset: int) -> tuple[int, int, int] | None:
        return (*self.units[offset], 0) if offset < len(self.units) else None

    def end_at(self, physical_offset: int) -> int:
        return sum(offset < physical_offset for offset, _ in self.units)

    def put(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> None:
        end = len(self.units) + len(self._pending)
        if queue_offset > end:
            raise Violation(f"QueuesComplete: message {queue_offset} of queue {self.queue_id}, which has {end}")
        if queue_offset == end:
            self._pending.append((physical_offset, size))
        elif (self.units + self._pending)[queue_offset] != (physical_offset, size):
            raise Violation(f"QueuesComplete: another message at {queue_offset} of queue {self.queue_id}")

    def write_pending(self) -> bool:
        wrote = bool(self._pending)
        self.units += self._pending
        self._pending = []
        self.next_offset = max(self.next_offset, len(self.units))
        return wrote

    def forget_pending(self) -> None:
        self._pending = []

    def recover(self, limit: int) -> None:
        self.truncate(limit)

    def truncate(self, limit: int) -> None:
        self._pending = []
        while self.units and sum(self.units[-1]) > limit:
            self.units.pop()
        self.next_offset = len(self.units)

    def raise_min(self, physical_offset: int) -> None:
        pass

    def power_cut(self, rng: Random, trusted: int) -> None:
        durable = len([unit for unit in self.units if sum(unit) <= trusted])
        del self.units[rng.randint(durable, len(self.units)) :]


class SimQueues(ConsumeQueues):
    """The queues of a disk."""

    def __init__(self, folder: Path, file_size: int) -> None:
        self.folder = folder
        self.table = cast("Any", here().disk.queues)

    def load(self, check: Callable[[], None] = lambda: None) -> None:
        for queue in self.table.values():
            queue.next_offset = queue.max_offset
            queue.forget_pending()

    def _make(self, topic: bytes, queue_id: int) -> Any:
        return SimQueue(topic.decode(), queue_id)

    def clear(self) -> None:
        self.table.clear()

    def close(self) -> None:
        pass


class SimQueueEnds(QueueEndsFile):
    """Nothing takes units from the simulated queues but power cuts."""

    def load(self) -> None:
        pass

    def due(self, position: int) -> bool:
        return False

    def save(self, ends: QueueEnds) -> bool:
        return True


class SimRootFiles(RootFiles):
    def __init__(self, root: Path) -> None:
        self._disk = here().disk

    def lock(self) -> None:
        pass

    def unlock(self) -> None:
        pass

    def mark_running(self) -> bool:
        clean = not self._disk.aborted
        self._disk.aborted = True
        return clean

    def mark_stopped(self) -> None:
        self._disk.aborted = False


class SimStore(MessageStore):
    """The real store, whose volume is never full."""

    def check_disk(self) -> float:
        return 0.0

    def expired(self, now_ms: int, hour: int) -> int:
        return 0


class Half(Process):
    """A process of a replica."""

    disk: ReplicaDisk


def here() -> Half:
    """The process that this code runs in."""
    process = asyncio.get_running_loop()
    assert isinstance(process, Half)
    return process
