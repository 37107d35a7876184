"""Logs of the lab in short, for the report of a failure: of what is printed there only some kilobytes may be kept."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from rocketmq_demo.controllers import ControllerProcess

JAVA = "broker.log"
"""The file of each official broker that tells most."""
_DECIDED = ("election", "broker lost", "event loop was stalled")
_FACTS = ("broker", "broker_id", "was_master", "reason", "code", "masterBrokerId", "masterEpoch", "term", "seconds")
_BAD = re.compile(r" (WARN|ERROR) (?!main )")  # what the start warns of is the same every time
_OURS_BAD = re.compile(r" \[(warning|error|critical) *\] ")
_OURS = ("broker/out.log", "sidecar/out.log")
_LINES, _WARNINGS, _LAST = 40, 12, 8
_OURS_WARNINGS, _OURS_LAST = 4, 7
_WIDTH = 180


def decided(controllers: Iterable[ControllerProcess]) -> list[str]:
    """Who was lost, elected and led, as all controllers say in the order of time; the last lines of it."""
    entries = [entry for process in controllers for entry in _entries(process)]
    return [line[:_WIDTH] for _, line in sorted(entries)[-_LINES:]]


def _entries(process: ControllerProcess) -> Iterator[tuple[str, str]]:
    for text in process.log_path.read_text(errors="replace").splitlines():
        try:
            said = json.loads(text)
        except json.JSONDecodeError:  # killed in the middle of a line
            continue
        if said["event"].startswith(_DECIDED) or said["level"] in {"error", "critical"} or said.get("serving"):
            when = said["timestamp"][11:23]
            facts = " ".join(f"{fact}={said[fact]}" for fact in _FACTS if fact in said)
            yield said["timestamp"], f"{when} {process.member} {said['event']}: {facts}"


def replicas(folder: Path) -> list[str]:
    """The last of what our brokers and sidecars anywhere under `folder` say, in the order of time."""
    entries = []
    for path in folder.rglob("out.log"):
        if "/".join(path.parts[-2:]) in _OURS:
            label = "/".join(path.parts[-4:-1])
            for line in _last(path, _OURS_BAD, _OURS_WARNINGS, _OURS_LAST):
                when, _, text = line.partition(" ")
                entries.append((when, f"{when[11:23]} {label} {' '.join(text.split())}"[:_WIDTH]))
    return [line for _, line in sorted(entries)]


def shortened(path: Path) -> list[str]:
    """The last warnings and errors of a Java log, and its last lines whatever they are."""
    return [line[:_WIDTH] for line in _last(path, _BAD, _WARNINGS, _LAST)]


def _last(path: Path, bad: re.Pattern[str], warnings: int, count: int) -> list[str]:
    """The last `warnings` lines that match `bad`, and the last `count` whatever they are."""
    lines = [line for line in path.read_text(errors="replace").splitlines() if not line.startswith("\tat ")]
    found = [number for number, line in enumerate(lines) if bad.search(line)]
    kept = sorted({*found[-warnings:], *range(max(len(lines) - count, 0), len(lines))})
    return [lines[number] for number in kept]
