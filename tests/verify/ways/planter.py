"""Damages stores at random, from a seed, with code of its own: nothing here writes or parses with the product's.

A case is a group of 1 to 5 whole replicas, in epochs, some with expired files, and at most one kind of damage. The
planter knows what it changed from the bytes that it wrote, and so what a verification has to say. In `run_later` the
damage comes after a first run, alike in one, some or all replicas: the ledger has to tell. `python -m
tests.verify.ways.planter COUNT SEED` runs many of both.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from random import Random
from struct import pack
from typing import NamedTuple
from zlib import crc32

from rocketmq_commitlog import queue_files
from rocketmq_verify.domain.findings import Kind, Severity
from rocketmq_verify.sources.work import Place
from tests.verify.history.stores import save_all
from tests.verify.index_kit import LAYOUT, Index, Indexes, Layout, hash_of, keys_of, name_of
from tests.verify.planted.faults import CHUNK, SEGMENT, Group, Message
from tests.verify.ways.ways_kit import MOST, Outcome, Sidecars, sidecars, verify

UNIT = 20
HEAD = 88
"""Bytes of a record of these groups before its body."""
TOPIC_AT = 1
"""Behind a body: the topic's first byte."""
PROPERTIES_AT = 9
"""Behind a body: the first byte of the properties, after the topic and two lengths."""
SMALL = Layout(slots=20, entries=80)
UNCHECKED = ("topic", "properties", "time")
"""Nothing in a log speaks against these if they are wrong alike in all replicas."""
TABLE = ("epochs",)
"""Nor against this: all believe it."""


class Case(NamedTuple):
    """What was planted; `guilty`: the replicas that have it, no one in a sound group."""

    text: str
    places: tuple[Place, ...]
    guilty: frozenset[str]
    codes: frozenset[int] = frozenset({1})
    """Exit codes that are right if there are two replicas and some are guilty."""
    bad_index: str | None = None
    """The replica with damage in an index file, which is information."""


def plant(seed: int, root: Path) -> Case:
    """The stores of this seed, in `root`."""
    chance = Random(seed)
    indexes: dict[str, Indexes] = {}
    group = _group(chance, indexes)
    places = save_all(group, root)
    names = [str(replica.name) for replica in group.replicas]
    if indexed := chance.random() < 0.5:
        for name in names:
            indexes[name].save(root / name)
    kind = chance.choice([*DAMAGES, "nothing"])
    if indexed and chance.random() < 0.3:
        return _damage_index(seed, root, group, indexes, places)
    everywhere = chance.random() < 0.4 and kind not in UNCHECKED + TABLE
    guilty = names if everywhere else [chance.choice(names)]
    first = max(group[name].min for name in names)
    confirmed = min(group[name].confirm for name in names)
    candidates = [one for one in group.messages if first <= one.offset and one.end <= confirmed]
    text = f"seed {seed}: {len(names)} replicas, {kind}"
    if kind == "nothing" or not candidates:
        return Case(f"{text}: sound", places, frozenset())
    number = chance.randrange(len(candidates))
    message = candidates[number]
    done = [name for name in guilty if _damage(root / name, kind, message, Random(seed))]
    text = f"{text} of message {number} at {message.offset} in {','.join(done)}"
    # a tail that others have may be copied again
    return Case(text, places, frozenset(done), frozenset({1, 3} if kind == "tail" and not everywhere else {1}))


def _group(chance: Random, indexes: dict[str, Indexes] | None = None) -> Group:
    """At rest: in sync, or with slaves that lag, or with what an old master had alone. `indexes`: of each replica, are
    filled."""
    group = Group(chance.randint(1, MOST))
    followed = {} if indexes is None else indexes
    followed |= {str(one.name): Indexes(chance.choice([LAYOUT, SMALL])) for one in group.replicas}
    for _ in range(chance.randint(1, 3)):
        group.fill(chance.randint(10, 40), chance.choice([80, 300, 900]))
        if chance.random() < 0.5:
            for _ in range(chance.choice([0, 0, 1, 4])):
                group.put(chance.choice([80, 900]))
            _follow(group, followed)
            group.elect(chance.choice(group.replicas))
            group.clock -= chance.choice([0, 9_990, 12_000])  # a failover within a second, or to a clock that is late
            group.sync()
        _follow(group, followed)
    group.sync()
    for replica in group.replicas:
        if chance.random() < 0.25 and replica.end > 2 * SEGMENT:
            group.expire(replica)
    for _ in range(chance.choice([0, 0, 5])):
        group.put(chance.choice([80, 900]))
    if group.slaves and chance.random() < 0.5:
        group.copy(chance.choice(group.slaves), chance.randint(1, 3000))
    _follow(group, followed)
    if group.slaves and chance.random() < 0.2:
        group.elect(chance.choice(group.slaves))
    return group


def _follow(group: Group, indexes: dict[str, Indexes]) -> None:
    """Each broker indexes what it has of the master's log."""
    for replica in group.replicas:
        have = [
            one
            for one in group.messages
            if one.end <= replica.end and replica.data[one.offset : one.end] == group.master.data[one.offset : one.end]
        ]
        indexes[str(replica.name)].follow(bytes(replica.data), have)


INDEX_DAMAGES = ("hash", "place", "seconds", "chain", "slot", "zeros", "count", "end")


def _damage_index(seed: int, root: Path, group: Group, indexes: dict[str, Indexes], places: tuple[Place, ...]) -> Case:
    """In the entry of a message that all have, behind another one of its epoch that has its entries too."""
    chance = Random(seed)
    name, kind = chance.choice(sorted(indexes)), chance.choice(INDEX_DAMAGES)
    first = max(replica.min for replica in group.replicas)
    confirmed = min(replica.confirm for replica in group.replicas)
    text = f"seed {seed}: {len(places)} replicas, index {kind} in {name}"
    starts = {start for replica in group.replicas for _, start in replica.epochs}
    candidates = [
        (one, file, number)
        for before, one in pairwise(group.messages)
        if first <= before.offset and one.end <= confirmed
        if not any(before.offset < start <= one.offset for start in starts)
        for file, index in enumerate(indexes[name].files)
        if _entries(index, group, before) >= 2
        for number, (key, offset) in enumerate(index.places)
        if offset == one.offset and key in _keys(group, one) and number > 1
    ]
    if not candidates:
        return Case(f"{text}: sound", places, frozenset())
    message, file, number = chance.choice(candidates)
    index = indexes[name].files[file]
    layout, at = index.layout, index.layout.at(number)
    slot = layout.slot_at(hash_of(index.places[number][0]) % layout.slots)
    changes = {
        "hash": (at + chance.randrange(4), None),
        "place": (at + 4, pack(">q", message.offset + 1)),
        "seconds": (at + 12, pack(">i", chance.choice([99, -1, 1 << 30]))),
        "chain": (at + 16, pack(">i", number)),
        "slot": (slot, bytes(4)),
        "zeros": (at, bytes(20 * chance.randint(1, 3))),
        "count": (36, pack(">i", chance.choice([layout.entries + 1, 1, 0, -1, index.count - 1]))),
        "end": (24 + chance.randrange(8), None),
    }
    where, data = changes[kind]
    path = root / name / "index" / name_of(file)
    whole = bytearray(path.read_bytes())
    if data is None:
        whole[where] ^= 1
    else:
        whole[where : where + len(data)] = data
    path.write_bytes(whole[: layout.size])
    return Case(f"{text} of entry {number} at {message.offset}", places, frozenset(), bad_index=name)


def _keys(group: Group, one: Message) -> set[str]:
    data = bytes(group.master.data[one.body_start + one.body_length + PROPERTIES_AT : one.end])
    return {f"Orders#{key}" for key in keys_of(data)}


def _entries(index: Index, group: Group, one: Message) -> int:
    """How many right ones it has."""
    keys = _keys(group, one)
    return sum(offset == one.offset and key in keys for key, offset in index.places)


def _damage(store: Path, kind: str, message: Message, chance: Random) -> bool:
    """Whether the store has it now: it may have no such place."""
    log, size = store / "commitlog", SEGMENT
    behind = message.body_start + message.body_length
    at, data = BYTES[kind](message, chance, behind) if kind in BYTES else (0, None)
    if kind in BYTES:
        _overwrite(log, size, at, data)
    elif kind == "unit":
        log, size = store / "consumequeue" / "Orders" / "3", 200 * UNIT
        at, data = message.queue_offset * UNIT, pack(">qiq", *_unit(chance, message.offset, message.size))
        _overwrite(log, size, at, data)
    elif kind == "queues":
        shutil.rmtree(store / "consumequeue")
    elif kind == "epochs":
        return _renumber([one / "epochFileCheckpoint" for one in (store, *store.parent.iterdir())], message.offset)
    elif kind == "tail":
        for file in sorted(log.iterdir()):
            start = int(file.name)
            if start + size > message.offset:
                whole = file.read_bytes()
                file.write_bytes(whole[: max(message.offset - start, 0)].ljust(size, b"\0"))
    else:
        return _lose(log, kind, chance)
    return True


def _renumber(tables: list[Path], offset: int) -> bool:
    """The epochs of the first table from that of `offset` on are others; False where not all tables have that entry."""
    own, *others = (set(table.read_bytes().split()[2:]) for table in tables)
    known = sorted(tuple(map(int, line.split(b"-"))) for line in own)
    start = max((start for _, start in known if start <= offset), default=-1)
    if not all(any(line.endswith(b"-%d" % start) for line in table) for table in others):
        return False
    lines = b"".join(b"%d-%d\n" % (epoch + 50 * (at >= start), at) for epoch, at in known)
    tables[0].write_bytes(b"%d\n%d\n%b" % (len(known), crc32(lines) & 0x7FFFFFFF, lines))
    return True


def _lose(log: Path, kind: str, chance: Random) -> bool:
    """A file between others, whole or its end."""
    between = sorted(log.iterdir())[1:-1]
    if not between:
        return False
    file = chance.choice(between)
    if kind == "file":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[: chance.randrange(1, SEGMENT)])
    return True


BYTES: dict[str, Callable[[Message, Random, int], tuple[int, bytes | None]]] = {
    "body": lambda one, chance, _: (one.body_start + chance.randrange(one.body_length), None),
    "magic": lambda one, chance, _: (one.offset + 4 + chance.randrange(4), None),
    "place": lambda one, chance, _: (one.offset + 28 + chance.randrange(8), None),
    "size": lambda one, chance, _: (one.offset + chance.randrange(4), None),
    "crc": lambda one, chance, _: (one.offset + 8 + chance.randrange(4), None),
    "number": lambda one, chance, _: (one.offset + 20 + chance.randrange(8), None),
    "time": lambda one, chance, _: (one.offset + 62 + chance.randrange(2), None),
    "topic": lambda one, chance, behind: (behind + TOPIC_AT + chance.randrange(6), None),
    "properties": lambda one, chance, behind: (behind + PROPERTIES_AT + chance.randrange(20), None),
    "zeros": lambda one, chance, _: (one.offset, bytes(chance.randint(HEAD, one.size))),
    "noise": lambda one, chance, _: (one.offset, chance.randbytes(chance.randint(HEAD, one.size))),
}
"""Where bytes change, and to what; None: a bit flips."""
DAMAGES = (*BYTES, "unit", "queues", "epochs", "tail", "file", "cut")


def _unit(chance: Random, offset: int, size: int) -> tuple[int, int, int]:
    return chance.choice([(offset + 1, size, 0), (offset, size + 1, 0), (offset, size, 5)])


def _overwrite(folder: Path, size: int, at: int, data: bytes | None) -> None:
    """Put `data` at `at` of the files of `size` bytes; None: flip a bit there."""
    file = folder / f"{at - at % size:020d}"
    whole = bytearray(file.read_bytes())
    index = at % size
    if data is None:
        whole[index] ^= 1
    else:
        whole[index : index + len(data)] = data[: size - index]
    file.write_bytes(whole)


def run_later(seed: int, doors: Sidecars | None) -> str | None:
    """A run over a sound group, then damage that is alike in some replicas, and another run: what is wrong with it."""
    root = Path(tempfile.mkdtemp(prefix="planted-"))
    try:
        return _later(seed, root, doors)
    except Exception as error:
        raise AssertionError(f"seed {seed}, later") from error
    finally:
        shutil.rmtree(root)


def _later(seed: int, root: Path, doors: Sidecars | None) -> str | None:
    chance = Random(seed)
    group = _group(chance)
    places = save_all(group, root)
    served = places if doors is None else doors.of(places)
    names = [replica.name for replica in group.replicas]
    guilty = set(chance.sample(names, chance.randint(0, len(names))))
    kind = chance.choice(sorted(kind for kind in BYTES if kind not in {"zeros", "noise"}))
    # in a cell that every replica has, and that is confirmed in all of them
    first = max(group[name].min for name in names)
    last = min(group[name].confirm for name in names) // CHUNK * CHUNK
    candidates = [one for one in group.messages if first <= one.offset and one.end <= last]
    text = f"seed {seed}, later: {len(names)} replicas, {kind} in {','.join(sorted(guilty))}"
    before = verify(served, root / "ledger")
    if before.verdict.exit_code == 1:
        return f"{text}: a false alarm at first: {before.findings}"
    message = chance.choice(candidates) if candidates else None
    for name in sorted(guilty) if message else ():
        _damage(root / name, kind, message, Random(seed))
    found = verify(served, root / "ledger")
    if message is None or not guilty:
        wrong = found.verdict.exit_code == 1 or [one.kind for one in found.findings] != [
            one.kind for one in before.findings
        ]
        return f"{text}: a false alarm: {found.findings}" if wrong else None
    told = {name for one in found.findings for name in one.replicas if one.severity is Severity.MISMATCH}
    copies = [copy for one in found.findings for copy in one.copies if copy.right is not None]
    if found.verdict.exit_code != 1 or not guilty <= told:
        return f"{text} at {message.offset}: {found.verdict.summary}, {told} were told"
    if not all(copy.right == (copy.replica not in guilty) for copy in copies):
        return f"{text} at {message.offset}: a wrong copy is called right: {found.findings}"
    return None


def judge(case: Case, found: Outcome) -> str | None:
    """What is wrong with the verdict; None: nothing."""
    told = {str(name) for finding in found.findings for name in finding.replicas}
    code = found.verdict.exit_code
    bad = {str(name) for one in found.findings if one.kind is Kind.INDEX_MISMATCH for name in one.replicas}
    several = len(case.places) > 1
    wrong = {
        f"a false alarm: {found.findings}": not case.guilty and code == 1,
        f"a false alarm of an index: {found.findings}": not case.guilty and bad - {case.bad_index},
        f"a false 'aligned' of an index: {found.verdict.summary}": several and case.bad_index and not bad,
        "verified one replica alone": not several and code != 3,
        f"not verified: {found.verdict.summary}": several and not case.guilty and code,
        f"a false 'aligned' ({code}): {found.verdict.summary}": several and case.guilty and code not in case.codes,
        f"only {told} were told": several and not case.guilty <= told,
    }
    return next((f"{case.text}: {why}" for why, it_is in wrong.items() if it_is), None)


def run(seed: int, doors: Sidecars | None) -> str | None:
    """One case: as files, or through `doors` where they are given."""
    root = Path(tempfile.mkdtemp(prefix="planted-"))
    try:
        case = plant(seed, root)
        places = case.places if doors is None else doors.of(case.places)
        return judge(case, verify(places))
    except Exception as error:
        raise AssertionError(f"seed {seed}") from error
    finally:
        shutil.rmtree(root)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=10_000)
    parser.add_argument("seed", type=int, nargs="?", default=int(time.time()))
    parser.add_argument("--sidecars", action="store_true", help="read through sidecars")
    options = parser.parse_args()
    queue_files.PAUSE = 0.0  # type: ignore[misc]  # nothing writes here
    bad = 0
    with sidecars() if options.sidecars else nullcontext() as doors:
        for seed in range(options.seed, options.seed + options.count):
            for one in (run, run_later):
                if (why := one(seed, doors)) is not None:
                    bad += 1
                    print(why, flush=True)
    print(f"{options.count} cases of each kind from seed {options.seed}: {bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
