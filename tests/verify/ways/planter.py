"""Damages stores at random, from a seed, with code of its own: nothing here writes or parses with the product's.

A case is a group of 1 to 5 whole replicas, in epochs, some with expired files, and at most one kind of damage. The
planter knows what it changed from the bytes that it wrote, and so what a verification has to say. `python -m
tests.verify.ways.planter COUNT SEED` runs many.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from random import Random
from struct import pack
from typing import NamedTuple

from rocketmq_commitlog import queue_files
from rocketmq_verify.sources.work import Place
from tests.verify.history.stores import save_all
from tests.verify.planted.faults import SEGMENT, Group, Message
from tests.verify.ways.ways_kit import MOST, Outcome, Sidecars, sidecars, verify

UNIT = 20
HEAD = 88
"""Bytes of a record of these groups before its body."""


class Case(NamedTuple):
    """What was planted; `guilty`: the replicas that have it, nobody in a sound group."""

    text: str
    places: tuple[Place, ...]
    guilty: frozenset[str]


def plant(seed: int, root: Path) -> Case:
    """The stores of this seed, in `root`."""
    chance = Random(seed)
    group = Group(chance.randint(1, MOST))
    for _ in range(chance.randint(1, 3)):
        group.fill(chance.randint(10, 40), chance.choice([80, 300, 900]))
        if chance.random() < 0.5:
            group.elect(chance.choice(group.replicas))
            group.sync()
    group.sync()
    for replica in group.replicas:
        if chance.random() < 0.25 and replica.end > 2 * SEGMENT:
            group.expire(replica)
    places = save_all(group, root)
    names = [str(replica.name) for replica in group.replicas]
    kind = chance.choice([*DAMAGES, "nothing"])
    everywhere = chance.random() < 0.4
    guilty = names if everywhere else [chance.choice(names)]
    first = max(group[name].min for name in names)
    confirmed = min(group[name].confirm for name in names)
    candidates = [one for one in group.messages if first <= one.offset and one.end <= confirmed]
    text = f"seed {seed}: {len(names)} replicas, {kind}"
    if kind == "nothing" or not candidates:
        return Case(f"{text}: sound", places, frozenset())
    number = chance.randrange(len(candidates))
    message = candidates[number]
    for name in guilty:
        _damage(root / name, kind, message, Random(seed))
    return Case(f"{text} of message {number} at {message.offset} in {','.join(guilty)}", places, frozenset(guilty))


def _damage(store: Path, kind: str, message: Message, chance: Random) -> None:
    log, size = store / "commitlog", SEGMENT
    data: bytes | None = None
    if kind == "body":
        at = message.body_start + chance.randrange(message.body_length)
    elif kind == "magic":
        at = message.offset + 4 + chance.randrange(4)
    elif kind == "place":
        at = message.offset + 28 + chance.randrange(8)
    elif kind == "zeros":
        at, data = message.offset, bytes(chance.randint(HEAD, message.size))
    else:
        log, size = store / "consumequeue" / "Orders" / "3", 200 * UNIT
        at, data = message.queue_offset * UNIT, pack(">qiq", *_unit(chance, message.offset, message.size))
    _overwrite(log, size, at, data)


DAMAGES = ("body", "magic", "place", "zeros", "unit")


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


def judge(case: Case, found: Outcome) -> str | None:
    """What is wrong with the verdict; None: nothing."""
    told = {str(name) for finding in found.findings for name in finding.replicas}
    alarm = found.verdict.exit_code == 1
    if not case.guilty and alarm:
        return f"{case.text}: a false alarm: {found.findings}"
    if len(case.places) < 2:
        return None if found.verdict.exit_code == 3 else f"{case.text}: verified one replica alone"
    if not case.guilty and found.verdict.exit_code:
        return f"{case.text}: not verified: {found.verdict.summary}"
    if case.guilty and not alarm:
        return f"{case.text}: a false 'aligned': {found.verdict.summary}"
    if case.guilty and not case.guilty <= told:
        return f"{case.text}: only {told} were told"
    return None


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
            if (why := run(seed, doors)) is not None:
                bad += 1
                print(why, flush=True)
    print(f"{options.count} cases from seed {options.seed}: {bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
