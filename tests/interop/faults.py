"""The ledger under faults: how long nothing was acknowledged, and which acknowledged sends are still there."""

import itertools
import json
import math
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from rocketmq_demo.apache import ledger
from rocketmq_demo.apache.ledger import Acknowledged, Audit, Ledger
from rocketmq_formats.store.message import SMALLEST_RECORD
from tests.gate.patience import patient
from tests.interop.lab import Lab

SEND_OK = "SEND_OK"
TIMEOUT_MS = 1000
"""Of one send. With the client's default a hung master would cost 3 s per attempt, and hide the failover that is
measured here."""
_THREADS = 2
_BODY = 256
_PACE_MS = 5
"""Between two sends of a thread: a starting JVM needs the processor more than the producer does."""
_POLL = 0.05


@dataclass
class Fault:
    """The cost of one fault, in seconds."""

    name: str
    began: float
    """`time.monotonic()` at its beginning."""
    longest_gap: float = 0.0
    """Between two acknowledged sends (SEND_OK), from the fault until the group had recovered."""
    decided_after: float | None = None
    """From the fault until the controllers reported another master: their share of the gap."""
    failed_sends: int = 0
    note: str = ""


class Load:
    """A producer that sends all the time, and its ledger."""

    def __init__(self, lab: Lab, topic: str, *, seconds: int) -> None:
        self._lab, self._topic = lab, topic
        self._ledger = Ledger(
            lab.folder / f"ledger-{topic}",
            nameservers=lab.nameserver_address,
            topic=topic,
            seconds=seconds,
            threads=_THREADS,
            size=_BODY,
            timeout_ms=TIMEOUT_MS,
            pace_ms=_PACE_MS,
        )
        self._offset = 0
        self._sent: list[int] = []
        self.half_promises = 0
        """Answers other than SEND_OK: stored, but not promised by all (FLUSH_SLAVE_TIMEOUT, ...)."""
        self.faults: list[Fault] = []
        self.audit: Audit | None = None
        """The result of `finish`."""

    @property
    def acknowledged(self) -> list[int]:
        """When each SEND_OK came, in monotonic nanoseconds, in the order of the ledger."""
        if self._ledger.path.exists():
            with self._ledger.path.open("rb") as book:
                book.seek(self._offset)
                text = book.read()
            whole = text[: text.rfind(b"\n") + 1]  # the last line may be half written
            self._offset += len(whole)
            for line in whole.decode().splitlines():
                _, _, at, _, status, _ = line.split("\t")
                if status == SEND_OK:
                    self._sent.append(int(at))
                else:
                    self.half_promises += 1
        return self._sent

    def wait_acknowledged(self, timeout: float = 120.0) -> None:
        """Wait for sends that certainly began after this call: each thread has one in flight."""
        self._wait(len(self.acknowledged) + 2 * _THREADS + 1, timeout)

    def wait_written(self, size: int, timeout: float = 120.0) -> None:
        """Wait until the acknowledged messages take at least `size` bytes of a log."""
        self._wait(size // (SMALLEST_RECORD + _BODY) + 1, timeout)

    def _wait(self, enough: int, timeout: float) -> None:
        """`timeout`: seconds without an acknowledged send; a slow machine takes its time."""
        seen, deadline = -1, 0.0
        while (acknowledged := len(self.acknowledged)) < enough:
            if acknowledged > seen:
                seen, deadline = acknowledged, time.monotonic() + patient(timeout)
            if time.monotonic() > deadline:
                failures = self._ledger.failures()[-3:]
                what = f"{acknowledged} sends are acknowledged, of {enough}, and none was for {timeout:g} s"
                raise TimeoutError(f"{what}; {failures}\n{self._ledger.tail()}")
            time.sleep(_POLL)

    @contextmanager
    def measure(self, name: str, note: str = "") -> Iterator[Fault]:
        """Inject the fault and wait inside the block; after it the fault has its longest gap, up to a later send."""
        self.wait_acknowledged()
        first, failures = len(self.acknowledged) - 1, len(self._ledger.failures())
        fault = Fault(name, time.monotonic(), note=note)
        yield fault
        self.wait_acknowledged()
        times = sorted(self.acknowledged[first:])
        gaps = [later - earlier for earlier, later in itertools.pairwise(times) if later / 1e9 > fault.began]
        fault.longest_gap = round(max(gaps) / 1e9, 3)
        fault.failed_sends = len(self._ledger.failures()) - failures
        self.faults.append(fault)

    def finish(self) -> Audit:
        """Stop sending, then read the whole topic and compare it with every SEND_OK."""
        self._ledger.finish()
        promised = self._ledger.path.with_name("send-ok.tsv")
        with self._ledger.path.open() as book, promised.open("w") as kept:
            kept.writelines(line for line in book if line.split("\t")[4] == SEND_OK)
        self.audit = ledger.audit(
            self._lab.folder / f"audit-{self._topic}",
            nameservers=self._lab.nameserver_address,
            topic=self._topic,
            ledger=promised,
            seconds=120,
        )
        return self.audit

    def close(self) -> None:
        self._ledger.close()


def longest_gap(acknowledged: Sequence[Acknowledged]) -> float:
    """The longest time without an acknowledgement, in seconds."""
    if not acknowledged:
        return math.inf
    times = sorted(entry.monotonic_ns for entry in acknowledged)
    return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0) / 1e9


def table(load: Load) -> Iterator[str]:
    """The measured gaps as text."""
    yield f"{'fault':<46}{'longest gap':>12}{'elected after':>15}{'failed sends':>14}  note"
    for fault in load.faults:
        decided = "" if fault.decided_after is None else f"{fault.decided_after:.3f} s"
        yield f"{fault.name:<46}{fault.longest_gap:>10.3f} s{decided:>15}{fault.failed_sends:>14}  {fault.note}"
    if load.audit is not None:
        yield f"acknowledged {load.audit['acknowledged']}, of these lost {load.audit['missingCount']}"


def write_report(path: Path, load: Load, **facts: object) -> None:
    """The same for machines, rewritten after each fault so that a broken run leaves its results."""
    path.parent.mkdir(parents=True, exist_ok=True)
    audit = {key: value for key, value in (load.audit or {}).items() if key not in {"queues", "duplicates"}}
    report = {
        "machine": platform.platform(),
        "sendTimeoutMs": TIMEOUT_MS,
        "threads": _THREADS,
        "faults": [asdict(fault) for fault in load.faults],
        "acknowledged": len(load.acknowledged),
        "halfPromises": load.half_promises,
        "audit": audit or None,
        **facts,
    }
    path.write_text(json.dumps(report, indent=2) + "\n")
