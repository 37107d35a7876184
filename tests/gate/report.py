"""`python -m tests.gate.report`: the end of a run of the gate: phases, the slowest tests, unstable ones, failures."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from tests.gate import lanes
from tests.gate.records import Record, Run, Unstable, failures, read, record_file

SLOWEST = 20
MOST_FAILURES = 20
RUNS: tuple[Run, ...] = ("first", "second")
WIDTH = 100


def unstable_table(found: Sequence[Unstable]) -> list[str]:
    """One row a run: which test failed, how it ended, and the load at that time."""
    if not found:
        return []
    rows = []
    for one in found:
        rows += [f"{one.phase}: {one.first.test}", _row("first", one.first), _row("second", one.second)]
    return [" unstable ".center(WIDTH, "="), *rows]


def _row(run: Run, record: Record | None) -> str:
    if record is None:
        return f"  {run:6}  was not run"
    return f"  {run:6}  {record.outcome} in {record.seconds:.0f} s, load {record.load:.1f}  {record.why}".rstrip()


def phases_table(lines: Iterable[str]) -> list[str]:
    """Rows of the lines that .ci/run writes: seconds; seconds of all processors at work, at work at a low priority, and
    idle; the name. What waits leaves the processors to the low priority, or idle."""
    rows = [
        ([int(number) for number in numbers], name) for *numbers, name in (line.split(maxsplit=4) for line in lines)
    ]
    if not rows:
        return []
    total = [sum(column) for column in zip(*(numbers for numbers, _ in rows), strict=True)]
    return [
        " phases ".center(WIDTH, "="),
        f"{'time':>8}{'CPU':>9}{'low':>9}{'idle':>9}",
        *(
            "".join([f"{numbers[0]:6} s", *(f"{one:7} s" for one in numbers[1:]), f"  {name}"])
            for numbers, name in rows
        ),
        "".join([f"{total[0]:6} s", *(f"{one:7} s" for one in total[1:]), "  in all"]),
    ]


def lanes_table(phase: str, records: Iterable[Record], heavy: Sequence[str]) -> list[str]:
    """The time of the files that only the first lane runs, and of all others: where one is the longer, the phase waits
    for it."""
    seconds = {True: 0.0, False: 0.0}
    for record in records:
        seconds[record.test.partition("::")[0] in heavy] += record.seconds
    return [f"lanes of {phase}: {seconds[True]:.0f} s with JVMs, {seconds[False]:.0f} s without"]


def _lanes(folders: Iterable[Path]) -> Iterator[str]:
    for folder in folders:
        if (file := lanes.heavy_file(folder)).exists():
            yield from lanes_table(
                folder.name, read(record_file(folder, "first")), msgspec.json.decode(file.read_bytes())
            )


def _slowest(records: Iterable[Record]) -> Iterator[str]:
    longest = sorted(records, key=lambda record: record.seconds, reverse=True)[:SLOWEST]
    if longest:
        yield f" {SLOWEST} slowest tests ".center(WIDTH, "=")
        yield from (f"{record.seconds:8.1f} s  {record.test}" for record in longest)


def failures_table(records: Iterable[Record], unstable: Iterable[Unstable]) -> list[str]:
    """Two rows for each failure that had no second run: the test, and why."""
    repeated = {one.first.test for one in unstable}
    failed = [record for record in failures(records) if record.test not in repeated]
    rows = []
    for record in failed[:MOST_FAILURES]:
        rows += [record.test, f"  {record.seconds:.0f} s, load {record.load:.1f}  {record.why}".rstrip()]
    if len(failed) > MOST_FAILURES:
        rows.append(f"and {len(failed) - MOST_FAILURES} more")
    return [" failed ".center(WIDTH, "="), *rows] if rows else []


def main() -> int:
    build = Path("build")
    folders = sorted((build / "gate").glob("*/"))
    records = [record for folder in folders for run in RUNS for record in read(record_file(folder, run))]
    file = build / "unstable.jsonl"
    lines = file.read_bytes().splitlines() if file.exists() else []
    unstable = [msgspec.json.decode(line, type=Unstable) for line in lines]
    tables = [*_lanes(folders), *_slowest(records), *unstable_table(unstable), *failures_table(records, unstable)]
    phases = build / "phases.txt"
    print("\n".join([*phases_table(phases.read_text().splitlines() if phases.exists() else []), *tables]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
