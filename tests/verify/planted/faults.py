"""A group of replicas in memory, the damage that can be done to them, and a run of the pure pipeline over them.

`Group` replicates as brokers do (epochs, truncation at the consistent point, confirm offsets of strict groups and of
Java's default); `verify` does, step by step, what the Spark job does with real logs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import xxhash

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_formats.store.message import BLANK_SIZE, record_size
from rocketmq_verify.domain.findings import Finding
from rocketmq_verify.domain.inquiry.compare import Tally, compare
from rocketmq_verify.domain.inquiry.inquiry import inquire, still_true
from rocketmq_verify.domain.inquiry.narrow import drive
from rocketmq_verify.domain.inquiry.unsettled import lasting, unsettled
from rocketmq_verify.domain.inquiry.watermarks import Watermarks, advanced, ages, anchored, fresh, still_anchored
from rocketmq_verify.domain.model import ChunkDigest, ReadRequest, ReplicaLog, ReplicaName
from rocketmq_verify.domain.planning import cursor
from rocketmq_verify.domain.planning.chunks import Plan, chunks, common, plan, split, within
from rocketmq_verify.domain.planning.lineage import Lineage, lineage
from rocketmq_verify.domain.verdict import Verdict, in_order, verdict
from tests.records import blank_before, make_record

SEGMENT = 16 << 10
CHUNK = 4 << 10
WEEK_MS = 7 * 86_400_000


class Message(NamedTuple):
    """Where a record is in each log that has it."""

    offset: int
    size: int
    queue_offset: int
    body_start: int
    body_length: int

    @property
    def end(self) -> int:
        return self.offset + self.size


class Replica:
    """One log, in memory; files are preallocated with zeros, and a cut leaves the bytes behind it as they were."""

    def __init__(self, name: str, broker_id: int, *, strict: bool = False) -> None:
        self.name = ReplicaName(name)
        self.broker_id: int | None = broker_id
        self.strict = strict
        self.data = bytearray()
        self.min = self.end = self.confirm = 0
        self.epochs: list[tuple[int, int]] = []
        self.lost: dict[int, int] = {}
        """Files that are not whole: their start -> bytes left (0: not there)."""

    def log(self) -> ReplicaLog:
        first = self.min - self.min % SEGMENT
        segments = [start for start in range(first, max(self.end, 1), SEGMENT) if self.lost.get(start, SEGMENT)]
        return ReplicaLog(
            name=self.name,
            broker_id=self.broker_id,
            min_offset=self.min,
            confirm_offset=self.confirm,
            max_offset=self.end,
            segment_size=SEGMENT,
            segments=tuple(segments),
            epochs=EpochList.of(self.epochs),
            strict=self.strict,
        )

    def write(self, offset: int, data: bytes) -> None:
        missing = -(-(offset + len(data)) // SEGMENT) * SEGMENT - len(self.data)
        self.data += bytes(max(missing, 0))
        self.data[offset : offset + len(data)] = data
        self.end = offset + len(data)

    def read(self, extent: Extent) -> bytes | None:
        """Files are preallocated: there is something behind the log's end."""
        if extent.start < self.min or extent.end > len(self.data):
            return None
        for start, left in self.lost.items():
            if extent.start < start + SEGMENT and extent.end > start + left:
                return None
        return bytes(self.data[extent.start : extent.end])

    def answer(self, request: ReadRequest) -> bytes | None:
        data = self.read(request.extent)
        return data if data is None or not request.digest else xxhash.xxh3_128_digest(data)

    def flip(self, offset: int, bit: int = 0) -> None:
        self.data[offset] ^= 1 << bit

    def truncate(self, offset: int) -> None:
        self.end = min(self.end, offset)
        self.confirm = min(self.confirm, offset)
        self.epochs = [(epoch, start) for epoch, start in self.epochs if start < offset]


class Group:
    """Replicas a, b, c, ...; `a` leads at first."""

    def __init__(self, replicas: int = 3, *, strict: bool = True, known_strict: bool = False) -> None:
        self.strict = strict
        self.replicas = [Replica("abcdefg"[i], i + 1, strict=known_strict) for i in range(replicas)]
        self.master = self.replicas[0]
        self.epoch = 0
        self.clock = 1_000
        self.messages: list[Message] = []
        """Of the master's history, as far as this master wrote or took it over."""
        self.connected: set[str] = set()
        self.told_late: set[str] = set()
        """Slaves connected since before the master's last election: they label what comes with the old epoch."""
        self.elect(self.master)

    def __getitem__(self, name: str) -> Replica:
        return next(replica for replica in self.replicas if replica.name == name)

    @property
    def slaves(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica is not self.master]

    def elect(self, replica: Replica) -> None:
        """A new epoch. A master elected again keeps its connections, and its slaves hear of the epoch when they
        reconnect; if it has written nothing since, its table keeps the old one. An entry of another master whose
        bytes this one never had is replaced (official brokers keep it: two logs may then differ under one epoch)."""
        if replica is self.master:
            self.told_late |= self.connected
        else:
            replica.epochs = [entry for entry in replica.epochs if entry[1] < replica.end]
            self.connected.clear()
        self.epoch += 1
        self.clock += 10_000
        self.master = replica
        self.messages = [message for message in self.messages if message.end <= replica.end]
        if not replica.epochs or replica.epochs[-1][1] < replica.end:
            replica.epochs.append((self.epoch, replica.end))
        self.confirmed()

    def put(self, length: int = 300, *, properties: bytes = b"") -> Message:
        master = self.master
        self.clock += 1
        body = bytes((self.clock * 31 + i * 7) % 251 for i in range(length))
        properties = properties or b"UNIQ_KEY\x01%030d\x02KEYS\x01k%d\x02" % (self.clock, self.clock)
        size = record_size(6, length, len(properties))
        if blank := blank_before(master.end, size, SEGMENT):
            # the rest of a blank is whatever was there
            rest = bytes(master.data[master.end + BLANK_SIZE : master.end + len(blank)])
            master.write(master.end, blank[:BLANK_SIZE] + rest.ljust(len(blank) - BLANK_SIZE, b"\0"))
        at = master.end
        queue_offset = self.messages[-1].queue_offset + 1 if self.messages else 0
        record = make_record(
            at,
            body,
            topic=b"Orders",
            queue_id=3,
            queue_offset=queue_offset,
            timestamp=self.clock,
            properties=properties,
        )
        master.write(at, record)
        self.messages.append(Message(at, size, queue_offset, at + 88, length))
        self.confirmed()
        return self.messages[-1]

    def restart_master(self) -> None:
        """Within its epoch, like a Java master whose death went unnoticed: the epoch's entry is rewritten."""
        self.connected.clear()
        kept = [(epoch, start) for epoch, start in self.master.epochs if epoch < self.epoch]
        if not kept or kept[-1][1] < self.master.end:
            self.master.epochs = [*kept, (self.epoch, self.master.end)]

    def connect(self, slave: Replica) -> bool:
        """RIP-44's truncation, as a slave does when it connects; False: there is no common point, it never will."""
        master = self.master
        if slave.end == 0:
            slave.epochs = []
            self.told_late.discard(slave.name)
            self.connected.add(slave.name)
            return True
        for index in range(len(slave.epochs) - 1, -1, -1):
            if slave.epochs[index] in master.epochs:
                ends = [
                    table[at + 1][1] if at + 1 < len(table) else owner.end
                    for owner, table, at in (
                        (slave, slave.epochs, index),
                        (master, master.epochs, master.epochs.index(slave.epochs[index])),
                    )
                ]
                if min(*ends, slave.end) < slave.min:
                    return False
                slave.truncate(min(*ends, slave.end))
                self.connected.add(slave.name)
                self.told_late.discard(slave.name)
                return True
        return False

    def copy(self, slave: Replica, count: int | None = None) -> None:
        """Some bytes (all) from the master; not in whole records. A new slave begins at the master's first file."""
        master = self.master
        if slave.name not in self.connected and not self.connect(slave):
            return
        if slave.end < master.min:
            if slave.end:
                return  # what it needs next has expired: it has to be rebuilt
            slave.min = slave.end = master.min
            slave.data = bytearray(master.min)
        end = master.end if count is None else min(slave.end + count, master.end)
        start = slave.end
        if end > start:
            slave.write(start, bytes(master.data[start:end]))
            told = slave.epochs[-1][0] if slave.epochs else -1
            known = {epoch for epoch, _ in slave.epochs}
            late = slave.name in self.told_late and slave.epochs
            for epoch, at in master.epochs:
                if epoch > told and epoch not in known and at < end and not late:
                    slave.epochs.append((epoch, at))
        self.confirmed()

    def confirmed(self) -> None:
        """Strict: what all have; else what the master has. Slaves note what they have of that."""
        ends = [slave.end for slave in self.slaves if slave.name in self.connected]
        if not self.strict:
            self.master.confirm = self.master.end
        elif ends:
            self.master.confirm = max(self.master.confirm, min([*ends, self.master.end]))
        for slave in self.slaves:
            if slave.name in self.connected:
                slave.confirm = max(slave.confirm, min(self.master.confirm, slave.end))

    def sync(self) -> None:
        for slave in self.slaves:
            self.copy(slave)
        for slave in self.slaves:
            self.copy(slave)

    def fill(self, messages: int = 60, length: int = 700) -> Group:
        for index in range(messages):
            self.put(length + index % 7 * 40)
        self.sync()
        return self

    def expire(self, replica: Replica, files: int = 1) -> None:
        """The oldest files go, never the last, and the epochs that ended before with them."""
        replica.min = min(replica.min + files * SEGMENT, replica.end - replica.end % SEGMENT)
        ends = [start for _, start in replica.epochs[1:]]
        replica.epochs = [
            entry for entry, end in zip(replica.epochs, [*ends, replica.end + 1], strict=False) if end > replica.min
        ]

    def rebuild(self, replica: Replica) -> None:
        """An empty store, a new broker id."""
        self.connected.discard(replica.name)
        replica.data.clear()
        replica.min = replica.end = replica.confirm = 0
        replica.epochs = []
        replica.lost = {}
        replica.broker_id = max(one.broker_id or 0 for one in self.replicas) + 1


class Run(NamedTuple):
    """What a run gave."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    plan: Plan
    tally: Tally
    marks: Watermarks
    dropped: tuple[Finding, ...]
    rounds: int
    """Batches of questions after the digests of the chunks."""
    asked: list[ReadRequest]


def verify(
    replicas: Sequence[Replica],
    *,
    meanwhile: Callable[[], None] = lambda: None,
    every: int = 1,
    marks: Watermarks | None = None,
    full: bool = False,
    reread_ms: int = WEEK_MS,
    now_ms: int = 1_000,
    leg: int = 1 << 40,
    most_legs: int = 0,
) -> Run:
    """One run, in legs of `leg` bytes, at most so many (0: all). `meanwhile` is called between questions, `every` so
    many, and before each look but the first."""
    marks = marks or Watermarks()
    by_name = {replica.name: replica for replica in replicas}
    asked: list[ReadRequest] = []
    count = 0

    def answer(requests: tuple[ReadRequest, ...]) -> list[bytes | None]:
        nonlocal count
        found = []
        for request in requests:
            count += 1
            if count % every == 0:
                meanwhile()
            asked.append(request)
            found.append(by_name[request.replica].answer(request))
        return found

    before = [replica.log() for replica in replicas]
    first = lineage(before)
    held = drive(still_anchored(marks, before), answer)
    old = ages(held, before, first, now_ms=now_ms)
    again = cursor.again(old, now_ms=now_ms, ran_ms=held.ran_ms, promise_ms=reread_ms, chunk_size=CHUNK)
    new = fresh(held, before, first)
    whole = plan(first, new, chunk_size=CHUNK, again=again, full=full)
    pieces, done, legs = cursor.in_order(whole, new, old, held.suspects), [], 0
    tally = Tally()
    rounds = 0

    def counted(requests: tuple[ReadRequest, ...]) -> list[bytes | None]:
        nonlocal rounds
        rounds += 1
        return answer(requests)

    while True:
        part, pieces = cursor.next_leg(pieces, leg, SEGMENT)
        done, legs = [*done, *part], legs + 1
        for group in split(within(whole, part).pieces, 3, CHUNK):
            mine = Tally()
            for chunk in chunks(whole, group, first):
                holders = [zone.replica for zone in first.zones if zone.extent.meet(chunk.extent) == chunk.extent]
                requests = tuple(ReadRequest(name, chunk.extent, digest=True) for name in holders)
                digests = [
                    ChunkDigest(request.replica, chunk.offset, chunk.length, digest)
                    for request, digest in zip(requests, answer(requests), strict=True)
                ]
                mine.add(compare(chunk, digests, first))
            tally.merge(mine)
        meanwhile()
        second = lineage(before, [replica.log() for replica in replicas])
        asked.clear()
        rounds = 0
        found = drive(inquire(second, tally), counted)
        meanwhile()
        last: Lineage = lineage(before, [replica.log() for replica in replicas])
        standing = still_true(found, second, last)
        dropped = tuple(finding for finding in found if finding not in standing)
        left = unsettled(tally, last, found, standing)
        over = not pieces or legs == most_legs
        what = msgspec.structs.replace(within(whole, done), full=full and not pieces)
        new_marks = advanced(
            held, before, last, plan=what, tally=tally, unsettled=dropped, began_ms=now_ms, now_ms=now_ms
        )
        if over:
            break
    known = ages(new_marks, before, last, now_ms=now_ms)
    old_finding = cursor.late(known, last, now_ms=now_ms, promise_ms=reread_ms)
    too_old = [age.extent for age in cursor.overdue(known, now_ms=now_ms, promise_ms=reread_ms)]
    findings = in_order((*last.findings, *standing, *([] if old_finding is None else [old_finding])))
    said = verdict(
        before,
        last,
        what,
        tally,
        findings,
        group="broker-a",
        unsettled=(*left, *too_old),
        later=common(within(whole, pieces).pieces, new),
        lasting=lasting(left, marks),
        owed=common(pieces, held.suspects),
    )
    new_marks = drive(anchored(new_marks, last), answer)
    return Run(said, findings, what, tally, new_marks, dropped, rounds, asked)
