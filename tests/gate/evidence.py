"""What a failed test leaves behind: build/evidence/TEST/RUN."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.gate.records import Run

LOG_BYTES = 1 << 20
"""The last part of each log that is kept."""
LOGS = 60
"""Logs that are kept of one failure, the newest ones."""
LOG_NAMES = ("*.log", "*.out", "*.err", "*.txt")
COMMANDS = {
    "kernel.txt": ("dmesg", "--ctime"),
    "processes.txt": ("ps", "-eo", "pid,ppid,stat,pcpu,rss,etime,args", "--sort=-pcpu"),
}
COMMAND_LINES = 80


def folder(config: pytest.Config, test: str) -> Path:
    """The folder of one test in this run. A second run does not overwrite the first."""
    name = re.sub(r"[^\w.\-\[\]]+", "-", test)[-150:].strip("-")
    run: Run = config.getoption("gate_run", "first")
    return config.rootpath / "build" / "evidence" / name / run


def keep(item: pytest.Item, report: pytest.TestReport, since: float) -> Path:
    """Store the report, the state of the machine, and the logs that were written since then (UNIX seconds)."""
    place = folder(item.config, item.nodeid)
    place.mkdir(parents=True, exist_ok=True)
    sections = [f"----- {name} -----\n{text}" for name, text in report.sections]
    text = "\n".join([report.longreprtext, *sections])
    (place / f"{report.when}.txt").write_text(text, errors="backslashreplace")
    (place / "load.txt").write_text(f"{' '.join(f'{load:.1f}' for load in os.getloadavg())} (1, 5, 15 minutes)\n")
    for name, command in COMMANDS.items():
        (place / name).write_text(_output(command), errors="backslashreplace")
    factory = getattr(item.config, "_tmp_path_factory", None)
    if isinstance(factory, pytest.TempPathFactory):
        _copy_logs(factory.getbasetemp(), place / "logs", since)
    return place


def _output(command: tuple[str, ...]) -> str:
    """The table's head or the log's end: both put the interesting lines there."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{error}\n"
    lines = done.stdout.decode(errors="replace").splitlines()
    return "\n".join(lines[:COMMAND_LINES] if command[0] == "ps" else lines[-COMMAND_LINES:]) + "\n"


def _copy_logs(base: Path, target: Path, since: float) -> None:
    found: list[tuple[float, Path]] = []
    for pattern in LOG_NAMES:
        for file in base.rglob(pattern):
            try:
                changed = file.stat().st_mtime
            except OSError:
                continue  # its process is just removing it
            if changed >= since and file.is_file() and not file.is_symlink():
                found.append((changed, file))
    for _, file in sorted(found, reverse=True)[:LOGS]:
        copy = target / file.relative_to(base)
        try:
            with file.open("rb") as source:
                source.seek(max(0, file.stat().st_size - LOG_BYTES))
                end = source.read(LOG_BYTES)
        except OSError:
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(end)
