"""Runs the official ``mqadmin``. Its output is the only interface that many operators use, so tests compare it."""

from __future__ import annotations

import base64
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from rocketmq_demo.apache import processes
from rocketmq_demo.apache.processes import ProcessDiedError
from tests.gate.patience import patient
from tests.lab.programs import LabProcess, classpath

_OPTIONS = ("-Xms32m", "-Xmx128m", processes.COMPILE_LITTLE)


_MAIN = "org.apache.rocketmq.tools.command.MQAdminStartup"
_SEVERAL = "io.github.rocketmqha.lab.Tools"
_MARK = "\x01"
_POLL = 0.02


class Tools(LabProcess):
    """One JVM for any number of commands, one after the other."""

    def __init__(self, folder: Path) -> None:
        super().__init__("mqadmin", _SEVERAL, [], folder=folder, options=_OPTIONS, tethered=False)
        self._answered = 0

    def run(self, arguments: Sequence[str], *, timeout: float = 60.0) -> tuple[str, str]:
        """What the command wrote to stdout and stderr; it tells of failures on stderr only.

        Raises:
            TimeoutError, ProcessDiedError: it did not end in time, or the whole JVM has ended.
        """
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(_MARK.join(arguments).encode() + b"\n")
        stdin.flush()
        self._answered += 1
        deadline = time.monotonic() + patient(timeout)
        while len(answers := self._answers()) < self._answered:
            if not self.alive:
                raise ProcessDiedError(f"{self.name} ended with {self.exit_code} in {arguments}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} waited {timeout:g} s for {arguments}:\n{self.tail()}")
            time.sleep(_POLL)
        _, out, error = answers[self._answered - 1].split(" ")
        return base64.b64decode(out).decode(), base64.b64decode(error).decode()

    def _answers(self) -> list[str]:
        lines = self.output().splitlines(keepends=True)
        return [line.rstrip("\n") for line in lines if line.startswith(_MARK) and line.endswith("\n")]


def run_mqadmin(
    arguments: Sequence[str], *, folder: Path, timeout: float = 60.0, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run one command and wait for it. The exit code is 0 even when the command failed; failures are on stderr."""
    folder.mkdir(parents=True, exist_ok=True)
    return subprocess.run(
        processes.command(
            _MAIN, arguments, folder=folder, options=[*_OPTIONS, *options], logging="tools", classpath=classpath()
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
