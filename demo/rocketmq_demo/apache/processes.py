"""Single Java processes, for `servers`, `ledger` and tests/lab.

A process gets its own folder, which is also its home directory, because RocketMQ logs to ``~/logs/rocketmqlogs``.
When its owner is killed, its standard input ends, and it ends too.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rocketmq_demo.apache import jars
from rocketmq_demo.ports import HOST
from rocketmq_demo.processes import OwnedProcess, ProcessDiedError

__all__ = [
    "COMPILE_LITTLE",
    "LARGER_HEAP",
    "NO_TLS",
    "QUICK_START",
    "SMALL_HEAP",
    "TETHER",
    "JavaProcess",
    "ProcessDiedError",
    "command",
    "environment",
    "write_properties",
]

SMALL_HEAP = ("-Xms64m", "-Xmx256m", "-XX:MaxDirectMemorySize=128m")
LARGER_HEAP = ("-Xms128m", "-Xmx512m", "-XX:MaxDirectMemorySize=256m")
NO_TLS = "-Dtls.server.mode=disabled"
"""For servers, which would otherwise begin their life by making certificates: seconds of processor time."""
COMPILE_LITTLE = "-XX:TieredStopAtLevel=1"
"""For what lives for seconds or does little: compiling well costs more than it saves."""
QUICK_START = (NO_TLS, COMPILE_LITTLE)
"""For servers in tests: a broker listens after 2 s of processor time instead of 5.6 s. Not for measurements."""
_COMMON = (
    "-XX:+UseSerialGC",  # seven JVMs on two cores: collector threads would only fight each other
    "-XX:-UsePerfData",
    "-XX:-OmitStackTraceInFastThrow",
    "-Dfile.encoding=UTF-8",
    "-Duser.language=en",
    "-Djava.net.preferIPv4Stack=true",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",  # or a controller prints pages of traces on Java 17
)
TETHER = "io.github.rocketmqha.lab.Tether"
"""Runs the main class that is its first argument, and ends when its standard input does."""
_POLL = 0.02


class JavaProcess(OwnedProcess):
    """One running JVM, which ends with this process."""

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
        classpath: str | None = None,
    ) -> None:
        self.ports = tuple(ports)
        if tethered:
            main, arguments = TETHER, [main, *arguments]
        super().__init__(
            name,
            command(main, arguments, folder=folder, options=options, logging=logging, classpath=classpath),
            folder=folder,
            environment=environment(),
            stdin_open=True,
        )

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

    def stop(self, timeout: float = 30.0) -> int:
        """As any process; a JVM's shutdown hooks take longer."""
        return super().stop(timeout)


def command(
    main: str,
    arguments: Sequence[str],
    *,
    folder: Path,
    options: Sequence[str] = SMALL_HEAP,
    logging: str = "client",
    classpath: str | None = None,
) -> list[str]:
    """The command line of a JVM whose home directory and RocketMQ installation are `folder`.

    `logging` picks one of the configurations inside RocketMQ's jars; all of them are on the one class path, and without
    a choice every process would log like a broker. `classpath` is for programs that the demo's own does not have.
    """
    places = (
        f"-Duser.home={folder}",
        f"-Drocketmq.home.dir={folder}",
        f"-Drmq.logback.configurationFile=rmq.{logging}.logback.xml",
    )
    return [jars.java(), *_COMMON, *places, *options, "-cp", classpath or jars.classpath(), main, *arguments]


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
