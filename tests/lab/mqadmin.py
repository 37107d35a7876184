"""Runs the official ``mqadmin``. Its output is the only interface that many operators use, so tests compare it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from rocketmq_demo.apache import processes
from tests.lab.programs import classpath

_OPTIONS = ("-Xms32m", "-Xmx128m", processes.COMPILE_LITTLE)


_MAIN = "org.apache.rocketmq.tools.command.MQAdminStartup"
_SEVERAL = "io.github.rocketmqha.lab.Tools"
_NEXT = "\x01\n"


def run_mqadmin(
    arguments: Sequence[str], *, folder: Path, timeout: float = 60.0, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run one command and wait for it. The exit code is 0 even when the command failed; failures are on stderr."""
    return _run(_MAIN, arguments, folder=folder, timeout=timeout, options=options)


def run_several(commands: Sequence[str], *, folder: Path, timeout: float = 120.0) -> list[tuple[str, str]]:
    """Run commands (whose arguments hold no spaces) one after the other in one JVM; returns what each wrote to
    stdout and stderr."""
    result = _run(_SEVERAL, commands, folder=folder, timeout=timeout)
    parts = result.stdout.split(_NEXT)[1:], result.stderr.split(_NEXT)[1:]
    return list(zip(*parts, strict=True))


def _run(
    main: str, arguments: Sequence[str], *, folder: Path, timeout: float, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    folder.mkdir(parents=True, exist_ok=True)
    return subprocess.run(
        processes.command(
            main, arguments, folder=folder, options=[*_OPTIONS, *options], logging="tools", classpath=classpath()
        ),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=processes.environment(),
        start_new_session=True,
        check=False,
    )
