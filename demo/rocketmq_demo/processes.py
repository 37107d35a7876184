"""Processes that the demo and the tests start, break and end: each has a folder, a log, and one owner.

A fault is a signal (killed, hung, resumed). Only processes started here are signalled, and those that still run when
this interpreter ends are ended with it.
"""

import atexit
import os
import secrets
import signal
import subprocess
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self


class ProcessDiedError(RuntimeError):
    """A process ended while it was waited for; the message has the end of its log."""


class OwnedProcess:
    """One running process in a process group of its own."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        stdin_open: bool = False,
    ) -> None:
        """Start `command` in `folder` (created if needed); its output is appended to `folder/out.log`.

        `stdin_open`: its standard input is empty and ends with this process, or with `close_stdin`.
        """
        self.name = name
        self.folder = folder
        self.log_path = folder / "out.log"
        folder.mkdir(parents=True, exist_ok=True)
        self.started = time.monotonic()
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(  # noqa: S603 - a list we composed, no shell
                list(command),
                cwd=folder,
                stdin=subprocess.PIPE if stdin_open else subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=dict(os.environ if environment is None else environment),
            )
        _running.add(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still exists; a hung process does."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number if one ended it."""
        return self._process.poll()

    def output(self) -> str:
        """The output of this process so far, without that of earlier ones in the same log."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def tail(self) -> str:
        """The end of `output`, for error messages."""
        return self.output()[-2000:]

    def resident_bytes(self) -> int:
        """Resident memory, 0 after the process has ended."""
        try:
            pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        except (FileNotFoundError, ProcessLookupError):
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def wait(self, timeout: float) -> int:
        """Wait up to `timeout` seconds for it to end by itself; its exit code.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        return self._process.wait(timeout)

    def kill9(self) -> None:
        """A crash: nothing is flushed, no peer is notified."""
        self._signal(signal.SIGKILL)
        self._process.wait(30)

    def stop(self, timeout: float = 15.0) -> int:
        """The orderly end: SIGTERM, then SIGKILL when it takes longer than `timeout` seconds; the exit code."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # a hung process could not react
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill9()
            return self._process.wait()

    def suspend(self) -> None:
        """A hang: connections stay open, without answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """The end of the hang."""
        self._signal(signal.SIGCONT)

    def close_stdin(self) -> None:
        """Let it read the end of its standard input."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def close(self) -> None:
        """End it at once if it still runs; harmless to repeat."""
        if self.alive:
            self.kill9()
        self.close_stdin()
        _running.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = f"pid {self.pid}" if self.alive else f"ended with {self.exit_code}"
        return f"<{type(self).__name__} {self.name}, {state}>"

    def _signal(self, number: signal.Signals) -> None:
        if self.alive:  # the number may belong to another process by now
            os.killpg(self.pid, number)


def make_secret(path: Path) -> Path:
    """A file with a secret that processes share, created if it does not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(32))
    return path


def clean_environment() -> dict[str, str]:
    """Our environment without ROCKETMQ_* variables, which are configuration, and without PYTHONDONTWRITEBYTECODE:
    a server without bytecode takes several times as long to start."""
    return {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("ROCKETMQ_") and key != "PYTHONDONTWRITEBYTECODE"
    }


_running: weakref.WeakSet[OwnedProcess] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for process in list(_running):
        process.close()
