"""The result of a run: the summary's rows and the JSON of `-o json`."""

import msgspec

from rocketmq_demo.engines.engine import LoadResult, ReadResult
from rocketmq_demo.story.timeline import Entry


class FaultReport(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One fault and its cost, in seconds."""

    fault: str
    target: str
    """What was hit: a broker by label, or controllers by member id."""
    longest_gap: float
    """Between two acknowledged sends, from the fault until everything was whole again."""
    longest_reading_gap: float | None
    """Between two moments in which the consumer got messages, in the same time; None without a consumer."""
    failed: int
    """Sends, in the same time."""
    resumed_after: float
    """From the fault until what it interrupts works again: writes, or a deciding controller."""
    whole_after: float
    """From the fault to all replicas in sync again; includes the time before the healing."""
    master_epoch_before: int
    master_epoch_after: int
    master_before: int | None
    master_after: int | None
    ids_kept: bool


class Outcome(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A whole run. `problems` is empty if every promise held."""

    engine: str
    remark: str
    replicas: int
    controllers: int
    seconds: float
    load: LoadResult
    reads: ReadResult | None
    """None without a consumer."""
    longest_gap: float
    broker_ids: dict[str, int]
    """By label, at the end."""
    faults: tuple[FaultReport, ...]
    problems: tuple[str, ...]
    timeline: tuple[Entry, ...]
    folder: str
