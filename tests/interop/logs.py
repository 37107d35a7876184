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
_LINES, _WARNINGS, _LAST = 40, 12, 8
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


def shortened(path: Path) -> list[str]:
    """The last warnings and errors of a Java log, and its last lines whatever they are."""
    lines = [line for line in path.read_text(errors="replace").splitlines() if not line.startswith("\tat ")]
    bad = [number for number, line in enumerate(lines) if _BAD.search(line)]
    kept = sorted({*bad[-_WARNINGS:], *range(max(len(lines) - _LAST, 0), len(lines))})
    return [lines[number][:_WIDTH] for number in kept]
