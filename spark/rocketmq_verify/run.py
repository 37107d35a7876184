"""One run: the request (from `cli` to `job`), and the result, for reports and the history."""

from enum import StrEnum
from typing import Final

import msgspec

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.structure import Structure
from rocketmq_settings.verify import VerifyKeys
from rocketmq_verify.alignment import Span
from rocketmq_verify.domain.findings import Finding
from rocketmq_verify.domain.inquiry.ledger import CELL_SIZE
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.domain.planning.ages import Aged
from rocketmq_verify.domain.planning.chunks import Plan
from rocketmq_verify.domain.planning.cursor import FIRST_LEG
from rocketmq_verify.domain.repair import Repair
from rocketmq_verify.domain.shapes import added
from rocketmq_verify.domain.verdict import Verdict
from rocketmq_verify.engine.session import SessionOptions
from rocketmq_verify.history.runs import Figures, Group, RunSummary
from rocketmq_verify.sizes import parse_size
from rocketmq_verify.sources.source import SourceOptions
from rocketmq_verify.sources.work import Place

_KEYS: Final = VerifyKeys()
DAY_MS: Final = 86_400_000


class EngineKind(StrEnum):
    """What reads and compares."""

    AUTO = "auto"
    """By the size of what is compared, see `job.LOCAL_BYTES`."""
    LOCAL = "local"
    SPARK = "spark"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What to verify, and how."""

    group: Group
    places: tuple[Place, ...]
    options: SourceOptions = SourceOptions()
    chunk_size: int = parse_size(_KEYS.chunk_size)
    reread_ms: int = _KEYS.reread_days * DAY_MS
    """Within this time every byte is read again."""
    full: bool = _KEYS.full
    time_budget: float = _KEYS.time_budget_seconds
    """Seconds after which the run ends, and the next one continues; 0: it reads all that it has to."""
    first_leg: int = FIRST_LEG
    """Bytes of the log that are read before something is kept for the first time."""
    structure: bool = _KEYS.structure
    queues: bool = _KEYS.queues
    allow_unreachable: bool = _KEYS.allow_unreachable
    broker_group: str = ""
    """The BrokerGroup of these replicas; empty: not on Kubernetes."""
    history_path: str = ""
    ledger_path: str = ""
    """A file with the ledger, instead of the history's; with it one replica is enough."""
    cell_size: int = CELL_SIZE
    """Of a ledger that begins."""
    engine: EngineKind = EngineKind.AUTO
    spark: SessionOptions = SessionOptions()


class QueueSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Consume queues and index files of all replicas."""

    units: int
    """Compared with their records."""
    lag: int
    """Records without a unit yet."""
    superseded: int
    """Records of a topic that was deleted and created again."""
    faults: int
    index_entries: int = 0
    """Of index files, compared with their records; 0: the stores have none."""
    index_faults: int = 0

    def plus(self, other: "QueueSummary | None") -> "QueueSummary":
        """The counts of both."""
        if other is None:
            return self
        return QueueSummary(
            units=self.units + other.units,
            lag=self.lag + other.lag,
            superseded=self.superseded + other.superseded,
            faults=self.faults + other.faults,
            index_entries=self.index_entries + other.index_entries,
            index_faults=self.index_faults + other.index_faults,
        )


class Timings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Seconds; what runs at the same time counts in each."""

    total: float
    states: float
    """Until all replicas were described for the first time."""
    session: float
    """Until Spark had started and was warm."""
    warm_up: float
    """Of these, the first query, over no data."""
    scan: float
    """Digests, compared."""
    inquiry: float
    """From differing chunks to messages."""
    structure: float
    queues: float


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking a log by itself; see `checks`."""

    findings: tuple[Finding, ...] = ()
    structure: Structure | None = None
    """None: not checked."""
    queues: QueueSummary | None = None
    """None: not checked."""
    suspects: tuple[Extent, ...] = ()
    """Where consume queues have faults, or what could not be checked: the next run checks it again."""
    unchecked: tuple[str, ...] = ()
    """Replicas whose checks did not come to an end, with the reason."""

    def plus(self, other: "Checked") -> "Checked":
        """This and what was checked next."""
        queues = self.queues if other.queues is None else other.queues.plus(self.queues)
        return Checked(
            findings=tuple(dict.fromkeys((*self.findings, *other.findings))),  # a file's header is seen by each leg
            structure=added(self.structure, other.structure),
            queues=queues,
            suspects=(*self.suspects, *other.suspects),
            unchecked=(*self.unchecked, *(why for why in other.unchecked if why not in self.unchecked)),
        )


class LedgerReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a run did with the ledger (`domain.inquiry.ledger`)."""

    cells: int
    """It has now."""
    cell_size: int
    confirmed: int
    """Cells that were read and are what they were in a replica."""
    changed: int
    """Cells that are not what they were in a replica, for whatever reason."""
    entered: int
    """New ones."""
    oldest_ms: int | None
    """Since when the oldest of those that were confirmed is known, in milliseconds since 1970."""
    notes: tuple[str, ...]
    """What else to tell: it was damaged, began again, could not be kept."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    group: Group
    verdict: Verdict
    findings: tuple[Finding, ...]
    plan: Plan
    masters: tuple[ReplicaName, ...]
    """The masters when the run began, as far as known."""
    checked: Checked
    repairs: tuple[Repair, ...]
    timings: Timings
    figures: Figures
    spans: tuple[Span, ...]
    """The state of every byte now."""
    earlier: tuple[RunSummary, ...] = ()
    """This run and those before it, oldest first; none without a history."""
    last_full_ms: int | None = None
    """When a run that read everything ended, this one included, in milliseconds since 1970; None: unknown."""
    oldest: Aged | None = None
    """What was not read for the longest time, of what was ever read; None: unknown, or nothing."""
    later_bytes: int = 0
    """What should have been read and was not, because the time was up."""
    ledger: LedgerReport | None = None
    """None: no history, and no file with one."""
    history_error: str = ""
    """Why the run could not be kept; empty: it was, or there is no history."""
