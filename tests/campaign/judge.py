"""Compares what was promised with what is stored, after everything has healed."""

import asyncio
import itertools
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.campaign import wire
from tests.campaign.cluster import FILE_SIZE, Cluster, Replica
from tests.campaign.load import DELAYS, LATER, QUEUES, TOPIC, Acked, History, Master, number_of, read_queue
from tests.campaign.plan import Story

CLOCK_STEP = 0.01
"""Seconds by which a delay may be short: store times are whole milliseconds, and clocks are slewed."""


class Verdict(msgspec.Struct):
    """Counts, and a sentence for each violation."""

    acked: int = 0
    lost: list[str] = []
    lost_numbers: set[int] = set()
    lost_at: list[float] = []
    """When those were acknowledged."""
    changed: list[str] = []
    twice: int = 0
    early: list[str] = []
    late_lost: list[str] = []
    """Delayed messages that never came."""
    fell_back: list[str] = []
    logs_differ: list[str] = []
    controllers: list[str] = []
    defects: list[str] = []
    stuck: str = ""
    forgot: str = ""
    """An official master that may have acknowledged without a member of the set, see `forgetful`."""

    def violations(self, story: Story) -> list[str]:
        """Everything that this story does not allow, as sentences."""
        return [sentence for sentences in self.by_check(story).values() for sentence in sentences]

    def by_check(self, story: Story) -> dict[str, list[str]]:
        """The violations by the names of docs/reliability.md, without those that have none."""
        found = {
            "early": self.early,
            "logs differ": self.logs_differ,
            "a rule's name": self.controllers,
            "defect": self.defects,
            "stuck": [self.stuck] if self.stuck else [],
        }
        if not story.may_lose and not self.forgot:
            found |= {"lost": self.lost, "changed": self.changed, "never came": self.late_lost}
        if story.durability == "strict" and not story.official:
            found["rolled back"] = self.fell_back
        return {check: sentences for check, sentences in found.items() if sentences}


async def judge(cluster: Cluster, history: History, verdict: Verdict, *, deadline: float) -> None:
    """Read everything back and compare. Raises TimeoutError if no broker allows that until `deadline`."""
    verdict.acked = len(history.acked) + len(history.delayed)
    place: dict[tuple[int, int], int] = {}
    oldest: dict[int, int] = {}
    for queue in range(QUEUES):
        found = await _read(cluster, TOPIC, queue, deadline)
        oldest[queue] = min(found, default=0)
        for offset, record in found.items():
            try:
                number = number_of(record.body)
            except ValueError as error:
                verdict.changed.append(f"queue {queue} offset {offset}: {error}")
            else:
                if number is not None:
                    place[queue, offset] = number
    find_lost(history, place, oldest, deleted_before(cluster.replicas, history), verdict)
    await _delayed(cluster, history, verdict, deadline)
    verdict.fell_back += [
        f"{missing} consumer offsets of queue {queue} were lost, from {first.offset} on, which {first.master} "
        f"acknowledged at {first.at:.3f}"
        for queue, first, missing in history.fallen_back
    ]


def find_lost(
    history: History, place: dict[tuple[int, int], int], oldest: dict[int, int], deleted_before: int, verdict: Verdict
) -> None:
    """Compare with the numbers that were read at (queue, offset). Only what lies below `deleted_before` of the commit
    log may be missing: `oldest`, where a queue begins, excuses nothing by itself."""
    where: dict[int, list[tuple[int, int]]] = {}
    for spot, number in place.items():
        where.setdefault(number, []).append(spot)
    verdict.twice = sum(len(spots) - 1 for spots in where.values())
    for number, acked in sorted(history.acked.items()):
        expired = acked.place < deleted_before and acked.offset < oldest[acked.queue]
        if not expired and place.get((acked.queue, acked.offset)) != number:
            verdict.lost.append(_lost(number, acked, where.get(number)))
            verdict.lost_numbers.add(number)
            verdict.lost_at.append(acked.at)
    verdict.changed += history.changed
    for (queue, offset), number in sorted(history.seen.items()):
        expired = deleted_before and offset < oldest[queue]
        if not expired and place.get((queue, offset)) != number:
            verdict.changed.append(f"a consumer saw {number} at queue {queue} offset {offset}; it is no longer there")


def _lost(number: int, acked: Acked, elsewhere: list[tuple[int, int]] | None) -> str:
    promise = f"message {number} was acknowledged at {acked.at:.3f} by {acked.master}"
    there = f"it is at {elsewhere}" if elsewhere else "it is nowhere"
    return f"{promise} as queue {acked.queue} offset {acked.offset}; {there}"


async def _delayed(cluster: Cluster, history: History, verdict: Verdict, deadline: float) -> None:
    found: set[int] = set()
    while True:
        for queue in range(QUEUES):
            for record in (await _read(cluster, LATER, queue, deadline)).values():
                number = number_of(record.body)
                if number is not None:
                    found.add(number)
        find_never_came(history, found, deleted_before(cluster.replicas, history), verdict)
        if not verdict.late_lost or asyncio.get_running_loop().time() > deadline:
            break
        await asyncio.sleep(0.5)
    find_early(history, verdict)


def deleted_before(replicas: list[Replica], history: History) -> int:
    """Below this offset of the commit log a replica has deleted files, as it does if its disk is full; 0 if none."""
    if not history.disk_was_full:
        return 0
    return max(log_files(replica.commit_log)[0] for replica in replicas)


def find_never_came(history: History, found: set[int], deleted_before: int, verdict: Verdict) -> None:
    """Delayed messages that are not among those `found` in their topic. Those that lie below `deleted_before` may have
    expired, before or after they were delivered."""
    verdict.late_lost = [
        f"delayed message {number} ({delayed}) never came"
        for number, delayed in sorted(history.delayed.items())
        if number not in found and delayed.place >= deleted_before
    ]


def find_early(history: History, verdict: Verdict) -> None:
    """Delayed messages that a consumer saw before their time. If all replicas were down in between, wall
    clocks decide, as in Java."""
    for number, delayed in history.delayed.items():
        seen = history.first_seen.get(number)
        if seen is None or any(delayed.sent < down < seen for down in history.all_down):
            continue
        if seen - delayed.sent < DELAYS[delayed.level] - CLOCK_STEP:
            verdict.early.append(
                f"delayed message {number} of level {delayed.level} came {seen - delayed.sent:.3f} s after it was sent"
            )


async def _read(cluster: Cluster, topic: str, queue: int, deadline: float) -> dict[int, wire.Record]:
    master = Master(cluster)
    while True:
        try:
            return await read_queue(await master.connection(), topic, queue)
        except (OSError, wire.RemotingError) as error:
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError(f"queue {queue} of {topic} could not be read: {error}") from error
            master.forget()
            await asyncio.sleep(0.2)
        finally:
            master.close()


# The files, when no process uses them

_UNANSWERED = re.compile(
    r"Error happen when change SyncStateSet.*\n.*\.Remoting(?:Timeout|SendRequest)Exception", re.MULTILINE
)


def forgetful(replicas: list[Replica]) -> str:
    """An official master that asked the controllers for a larger SyncStateSet and got no answer; empty if there was
    none. Its next proposal replaces the one before, which the controllers may have accepted: then it acknowledges
    without a member that can be elected (`AutoSwitchHAService.markSynchronizingSyncStateSet` of 5.3.3)."""
    for replica in replicas:
        for path in (replica.folder / "broker" / "logs").rglob("broker.log") if replica.official else ():
            if _UNANSWERED.search(path.read_text(errors="replace")):
                return replica.name
    return ""


_BLANK = 0xCBD43194
_RECORDS = {0xDAA320A7, 0xDAA320AB}


def log_bytes(folder: Path) -> tuple[int, bytes]:
    """(offset of the first byte, all records) of the commit log in a folder, blanks included."""
    start, files = log_files(folder)
    data = b"".join(path.read_bytes() for path in files)
    end = 0
    for at, length in _lengths(data, files[0].stat().st_size if files else 0):
        end = at + length
    return start, data[:end]


def log_files(folder: Path) -> tuple[int, list[Path]]:
    """(offset of the first byte, files) of the commit log in a folder; (0, none) for an empty one."""
    files = sorted(path for path in folder.iterdir() if path.name.isdecimal())
    return (int(files[0].name) if files else 0), files


def bodies(data: bytes) -> list[range]:
    """Where the bodies of the messages are in what `log_bytes` returned."""
    found = []
    for at, length in _lengths(data, FILE_SIZE):
        if data[at + 4 : at + 8] != _BLANK.to_bytes(4):
            (record,) = wire.records(data[at : at + length])
            start = data.index(record.body, at + wire.FIXED) if record.body else at
            found.append(range(start, start + len(record.body)))
    return found


def _lengths(data: bytes, size: int) -> Iterator[tuple[int, int]]:
    """(place, bytes) of each record and blank of a log whose files have `size` bytes each."""
    at = 0
    while at + 8 <= len(data):
        length, magic = struct.unpack_from(">iI", data, at)
        if magic == _BLANK:
            length = size - at % size
        elif magic not in _RECORDS or length <= 0:
            return
        yield at, length
        at += length


def compare_logs(replicas: list[Replica], history: History, verdict: Verdict) -> None:
    """Check that any two logs are equal byte for byte as far as both reach, and that each begins and ends where it has
    to: all replicas were in sync when the last message had been acknowledged. What is lost is judged elsewhere: a story
    may allow it, and then the logs end before it."""
    logs = {replica.name: log_bytes(replica.commit_log) for replica in replicas}
    kept = (acked.place for number, acked in history.acked.items() if number not in verdict.lost_numbers)
    acknowledged = max(kept, default=-1)
    for name, (start, data) in sorted(logs.items()):
        if start > 0 and not history.disk_was_full:
            verdict.logs_differ.append(f"the log of {name} begins at {start}, although no disk was full")
        if start + len(data) <= acknowledged:
            end = start + len(data)
            verdict.logs_differ.append(
                f"the log of {name} ends at {end}, before the message acknowledged at {acknowledged}"
            )
    for one, other in itertools.pairwise(sorted(logs)):
        difference = compare(one, logs[one], other, logs[other])
        if difference is not None:
            verdict.logs_differ.append(difference)


def compare(one: str, log: tuple[int, bytes], other: str, other_log: tuple[int, bytes]) -> str | None:
    """Where two logs, each (offset of its first byte, bytes), differ; None if they do not."""
    (start, data), (other_start, other_data) = log, other_log
    begin = max(start, other_start)
    end = min(start + len(data), other_start + len(other_data))
    here, there = data[begin - start : end - start], other_data[begin - other_start : end - other_start]
    if here == there:
        return None
    at = next(index for index, (a, b) in enumerate(zip(here, there, strict=True)) if a != b)
    return (
        f"the logs of {one} and {other} differ at {begin + at} (compared {begin} to {end}): "
        f"{_record_around(here, at)} and {_record_around(there, at)}"
    )


def _record_around(data: bytes, at: int) -> str:
    """The record that holds byte `at`, for the report."""
    start = max(data.rfind(magic.to_bytes(4), 0, at + 4) for magic in _RECORDS) - 4
    if start < 0:
        return "no record"
    size = int.from_bytes(data[start : start + 4])
    try:
        (record,) = wire.records(data[start : start + size])
    except (ValueError, IndexError, struct.error) as error:
        return f"no record ({error})"
    stored = f"stored {record.store_time}, byte {at - start} of {size}"
    return f"[{record.topic} queue {record.queue} offset {record.queue_offset} at {record.physical_offset}, {stored}]"
