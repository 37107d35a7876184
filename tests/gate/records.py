"""What a run of pytest leaves for the gate: one line of JSON per test."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

Run = Literal["first", "second"]
Outcome = Literal["passed", "failed", "skipped"]


class Record(msgspec.Struct, frozen=True):
    """One test of one run."""

    test: str
    """pytest's node id."""
    outcome: Outcome
    seconds: float
    """Of set-up, call and tear-down together."""
    repeatable: bool = False
    """A failure gets a second chance."""
    load: float = 0.0
    """Load average over one minute when the test ended."""
    why: str = ""
    """The line of a failure that says what is wrong."""


class Unstable(msgspec.Struct, frozen=True):
    """A test that failed and then ran again: a line of build/unstable.jsonl."""

    time: str
    phase: str
    first: Record
    second: Record | None
    """None: the second run did not reach the test."""

    @property
    def passed(self) -> bool:
        return self.second is not None and self.second.outcome == "passed"


def record_file(folder: Path, run: Run) -> Path:
    """The file of one run in the folder of its phase, build/gate/PHASE."""
    return folder / f"{run}.jsonl"


def read(file: Path) -> list[Record]:
    """The records of a file that may be missing. Raises msgspec.DecodeError if it is damaged."""
    if not file.exists():
        return []
    return [msgspec.json.decode(line, type=Record) for line in file.read_bytes().splitlines()]


def failures(records: Iterable[Record]) -> list[Record]:
    """Those that failed."""
    return [record for record in records if record.outcome == "failed"]
