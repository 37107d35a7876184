"""Starts, breaks and ends single Java processes; what they are for is said in `servers`, `admin` and `ledger`.

A process gets its own folder (which is also its home directory, because RocketMQ logs to ``~/logs/rocketmqlogs``), its
own process group, and an owner that ends exactly what it started. Faults are signals: killed, hung, resumed. Should the
owner be killed itself, the process notices the end of its standard input and follows.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rocketmq_demo.apache import jars
from rocketmq_demo.apache.ports import HOST

SMALL_HEAP = ("-Xms64m", "-Xmx256m", "-XX:MaxDirectMemorySize=128m")
LARGER_HEAP = ("-Xms128m", "-Xmx512m", "-XX:MaxDirectMemorySize=256m")
_COMMON = (
    "-XX:+UseSerialGC",  # seven JVMs on two cores: collector threads would only fight each other
    "-XX:-UsePerfData",
    "-XX:-OmitStackTraceInFastThrow",
    "-Dfile.encoding=UTF-8",
    "-Duser.language=en",
    "-Djava.net.preferIPv4Stack=true",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",  # or a controller prints pages of traces on Java 17
)
_TETHER = "io.github.rocketmqha.lab.Tether"
_POLL = 0.02


class ProcessDiedError(RuntimeError):
    """A process ended while somebody waited for it; the message holds the end of its output."""


class JavaProcess:
    """One running JVM that belongs to whoever holds this object."""

    def __init__(
        self,
        name: str,
        main: str,
        arguments: Sequence[str],
        *,
        folder: Path,
        ports: Iterable[int] = (),
        options: Sequence[str] = SMALL_HEAP,
        logging: str = "client",
        tethered: bool = True,  # False for a program that reads its standard input itself
    ) -> None:
        self.name = name
        self.folder = folder
        self.ports = tuple(ports)
        self.log_path = folder / "out.log"
        """What the process printed, over all its lives in this folder."""
        folder.mkdir(parents=True, exist_ok=True)
        if tethered:
            main, arguments = _TETHER, [main, *arguments]
        self.started = time.monotonic()
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(  # noqa: S603 - a list we composed, no shell
                command(main, arguments, folder=folder, options=options, logging=logging),
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment(),
            )
        _running.add(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def java_log_folder(self) -> Path:
        """Where RocketMQ's own log files are."""
        return self.folder / "logs" / "rocketmqlogs"

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def output(self) -> str:
        """What this life of the process has printed so far."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def tail(self) -> str:
        """The end of `output`, for error messages."""
        return self.output()[-2000:]

    def resident_bytes(self) -> int:
        """Resident memory, or 0 once the process is gone."""
        try:
            pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        except (FileNotFoundError, ProcessLookupError):
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def wait_port(self, timeout: float = 60.0) -> float:
        """Wait until every port accepts connections; returns the seconds since the start of the process."""
        deadline = time.monotonic() + timeout
        for port in self.ports:
            while not _accepts(port):
                if not self.alive:
                    raise ProcessDiedError(
                        f"{self.name} ended before it listened on {port}: {self.exit_code}\n{self.tail()}"
                    )
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self.name} does not listen on {port} after {timeout} s, see {self.log_path}")
                time.sleep(_POLL)
        return time.monotonic() - self.started

    def wait(self, timeout: float) -> int:
        """Wait for the process to end by itself; its exit code."""
        return self._process.wait(timeout)

    def kill9(self) -> None:
        """The crash: no shutdown hook runs, nothing is flushed by Java."""
        self._signal(signal.SIGKILL)
        self._process.wait(30)

    def stop(self, timeout: float = 30.0) -> int:
        """The orderly end: SIGTERM, and SIGKILL when that takes too long; the exit code."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # a suspended process could not run its shutdown hook
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill9()
            return self._process.wait()

    def suspend(self) -> None:
        """The hang: connections stay open, nobody answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def close_stdin(self) -> None:
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
        if self.alive:  # never signal a number that may belong to somebody else by now
            os.killpg(self.pid, number)


def command(
    main: str, arguments: Sequence[str], *, folder: Path, options: Sequence[str] = SMALL_HEAP, logging: str = "client"
) -> list[str]:
    """The command line of a JVM whose home directory and RocketMQ installation are `folder`.

    `logging` picks one of the configurations inside RocketMQ's jars; all of them are on the one class path, and without
    a choice every process would log like a broker.
    """
    places = (
        f"-Duser.home={folder}",
        f"-Drocketmq.home.dir={folder}",
        f"-Drmq.logback.configurationFile=rmq.{logging}.logback.xml",
    )
    return [jars.java(), *_COMMON, *places, *options, "-cp", jars.classpath(), main, *arguments]


def environment() -> dict[str, str]:
    """Ours without what would change RocketMQ behind our back (NAMESRV_ADDR, ROCKETMQ_HOME, JAVA_TOOL_OPTIONS, ...)."""
    banned = ("NAMESRV_ADDR", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
    return {key: value for key, value in os.environ.items() if key not in banned and not key.startswith("ROCKETMQ_")}


def write_properties(path: Path, values: Mapping[str, object]) -> Path:
    """A Java properties file; our values hold no character that would need escaping except the backslash."""
    text = {True: "true", False: "false"}
    lines = [
        f"{key}={text[value] if isinstance(value, bool) else value}".replace("\\", "\\\\")
        for key, value in values.items()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines))
    return path


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except OSError:
        return False


_running: weakref.WeakSet[JavaProcess] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for process in list(_running):
        process.close()
