"""Runs the official ``mqadmin``; what it prints is the only interface many operators know, so tests compare it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from rocketmq_demo.apache import processes

_OPTIONS = ("-Xms32m", "-Xmx128m", "-XX:TieredStopAtLevel=1")  # it lives for a second, so compile little


def run_mqadmin(
    arguments: Sequence[str], *, folder: Path, timeout: float = 60.0, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run one command and wait for it. The exit code is 0 even when the command failed; failures are on stderr."""
    folder.mkdir(parents=True, exist_ok=True)
    return subprocess.run(  # noqa: S603 - a list we composed, no shell
        processes.command(
            "org.apache.rocketmq.tools.command.MQAdminStartup",
            arguments,
            folder=folder,
            options=[*_OPTIONS, *options],
            logging="tools",
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
