"""Our load client over the official Java producer: what was acknowledged when, and whether all of it is still there.

Start `Ledger`, break something, read the entries while it runs, and audit the topic at the end. Times are from the
kernel's monotonic clock, which ``time.monotonic_ns`` reads too, so they compare with ours.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from rocketmq_demo.apache.processes import SMALL_HEAP, JavaProcess
from rocketmq_demo.processes import ProcessDiedError

_MAIN = "io.github.rocketmqha.lab.Ledger"


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """One message the cluster took; `status` is SEND_OK or one of Java's half promises (FLUSH_SLAVE_TIMEOUT, ...)."""

    number: int
    wall_ms: int
    monotonic_ns: int
    latency_us: int
    status: str
    message_id: str


@dataclass(frozen=True, slots=True)
class Failed:
    """One attempt that raised; whether the message was stored is unknown."""

    number: int
    wall_ms: int
    monotonic_ns: int
    latency_us: int
    error: str
    text: str


class QueueAudit(TypedDict):
    """How far one queue was read."""

    broker: str
    queue: int
    min: int
    max: int
    read: int


class Audit(TypedDict):
    """What is in the topic now, compared with a ledger; the lists hold the first 1000 numbers."""

    topic: str
    complete: bool
    messages: int
    distinct: int
    duplicateCount: int
    duplicates: list[int]
    acknowledged: int
    missingCount: int
    missing: list[int]
    unacknowledgedPresent: int
    queues: list[QueueAudit]


class Ledger(JavaProcess):
    """A running sender. It stops after `seconds`, or when `finish` or the end of this process closes its stdin.

    Each thread rests for `pause_ms` after a send that failed, and for `pace_ms` after one that did not.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nameservers: str,
        topic: str,
        seconds: int,
        threads: int = 1,
        size: int = 1024,
        retries: int = 0,
        timeout_ms: int = 3000,
        route_poll_ms: int = 100,
        pause_ms: int = 2,
        pace_ms: int = 0,
        first: int = 0,
        options: Sequence[str] = SMALL_HEAP,
    ) -> None:
        self.path = folder / "ledger.tsv"
        numbers = {
            "seconds": seconds,
            "threads": threads,
            "size": size,
            "retries": retries,
            "timeout-ms": timeout_ms,
            "route-poll-ms": route_poll_ms,
            "pause-ms": pause_ms,
            "pace-ms": pace_ms,
            "first": first,
        }
        arguments = [
            "send",
            "--namesrv",
            nameservers,
            "--topic",
            topic,
            "--out",
            str(self.path),
            "--until-stdin-closes",
        ]
        arguments += [text for name, value in numbers.items() for text in (f"--{name}", str(value))]
        super().__init__(f"ledger-{topic}", _MAIN, arguments, folder=folder, options=options, tethered=False)

    def acknowledged(self) -> list[Acknowledged]:
        """Everything acknowledged so far."""
        return [Acknowledged(int(a), int(b), int(c), int(d), e, f) for a, b, c, d, e, f in _rows(self.path)]

    @property
    def count(self) -> int:
        """How many were acknowledged so far, half promises among them; cheap enough to poll."""
        return self.path.read_bytes().count(b"\n") if self.path.exists() else 0

    def failures(self) -> list[Failed]:
        """Every attempt that failed so far."""
        path = self.path.with_name(self.path.name + ".failures")
        return [Failed(int(a), int(b), int(c), int(d), e, f) for a, b, c, d, e, f in _rows(path)]

    def finish(self, timeout: float = 30.0) -> None:
        """Stop sending now and wait until the last line is written."""
        self.close_stdin()
        self.join(timeout)

    def join(self, timeout: float) -> None:
        """Wait until it has stopped by itself."""
        if self.wait(timeout) != 0:
            raise ProcessDiedError(f"{self.name} ended with {self.exit_code}:\n{self.tail()}")


def audit(
    folder: Path,
    *,
    nameservers: str,
    topic: str,
    ledger: Path | None = None,
    seconds: int = 60,
    options: Sequence[str] = SMALL_HEAP,
) -> Audit:
    """Read the whole topic from its master and compare it with the acknowledged numbers of `ledger`."""
    arguments = ["read", "--namesrv", nameservers, "--topic", topic, "--seconds", str(seconds)]
    if ledger is not None:
        arguments += ["--ledger", str(ledger)]
    with JavaProcess(f"audit-{topic}", _MAIN, arguments, folder=folder, options=options) as process:
        code = process.wait(seconds + 30)
        if code != 0:
            raise ProcessDiedError(f"{process.name} ended with {code}:\n{process.tail()}")
        lines = [line for line in process.output().splitlines() if line.startswith("{")]
    result: Audit = json.loads(lines[-1])
    return result


def _rows(path: Path) -> list[list[str]]:
    if not path.exists():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]  # the last line may be half written
    return [line.split("\t") for line in whole.splitlines()]
