"""Logs of the lab in short, for the report of a failure: only some kilobytes of it may be kept."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from rocketmq_demo.controllers import ControllerProcess

JAVA = "broker.log"
"""The most useful file of each official broker."""
_DECIDED = ("election", "broker lost", "event loop was stalled")
_FACTS = ("broker", "broker_id", "was_master", "reason", "code", "masterBrokerId", "masterEpoch", "term", "seconds")
_BAD = re.compile(r" (WARN|ERROR) (?!main )")  # warnings of the start are the same every time
_OURS_BAD = re.compile(r" \[(warning|error|critical) *\] ")
_OURS = ("broker/out.log", "sidecar/out.log")
_LINES, _WARNINGS, _LAST = 40, 12, 8
_OURS_WARNINGS, _OURS_LAST = 4, 7
_WIDTH = 180


def decided(controllers: Iterable[ControllerProcess]) -> list[str]:
    """The last lines about lost brokers, elections and leaders from all controllers, in the order of time."""
    entries = [entry for process in controllers for entry in _entries(process)]
    return [line[:_WIDTH] for _, line in sorted(entries)[-_LINES:]]


def _entries(process: ControllerProcess) -> Iterator[tuple[str, str]]:
    for text in process.log_path.read_text(errors="replace").splitlines():
        try:
            entry = json.loads(text)
        except json.JSONDecodeError:  # killed in the middle of a line
            continue
        if entry["event"].startswith(_DECIDED) or entry["level"] in {"error", "critical"} or entry.get("serving"):
            when = entry["timestamp"][11:23]
            facts = " ".join(f"{fact}={entry[fact]}" for fact in _FACTS if fact in entry)
            yield entry["timestamp"], f"{when} {process.member} {entry['event']}: {facts}"


def replicas(folder: Path) -> list[str]:
    """The last log lines of our brokers and sidecars anywhere under `folder`, in the order of time."""
    entries = []
    for path in folder.rglob("out.log"):
        if "/".join(path.parts[-2:]) in _OURS:
            label = "/".join(path.parts[-4:-1])
            for line in _last(path, _OURS_BAD, _OURS_WARNINGS, _OURS_LAST):
                when, _, text = line.partition(" ")
                entries.append((when, f"{when[11:23]} {label} {' '.join(text.split())}"[:_WIDTH]))
    return [line for _, line in sorted(entries)]


def shortened(path: Path) -> list[str]:
    """The last warnings and errors of a Java log, and its last lines of any level."""
    return [line[:_WIDTH] for line in _last(path, _BAD, _WARNINGS, _LAST)]


def _last(path: Path, bad: re.Pattern[str], warnings: int, count: int) -> list[str]:
    """The last `warnings` lines that match `bad`, and the last `count` of any level."""
    lines = [line for line in path.read_text(errors="replace").splitlines() if not line.startswith("\tat ")]
    found = [number for number, line in enumerate(lines) if bad.search(line)]
    kept = sorted({*found[-warnings:], *range(max(len(lines) - count, 0), len(lines))})
    return [lines[number] for number in kept]
