"""What a run of the story found out: the summary's rows and the JSON of `-o json`."""

import msgspec

from rocketmq_demo.engine import LoadResult
from rocketmq_demo.timeline import Entry


class FaultReport(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One fault and what it cost. Seconds throughout."""

    fault: str
    target: str
    """What was hit: a broker by label, or controllers by member id."""
    longest_gap: float
    """Between two acknowledged sends, from the blow until everything was whole again."""
    resumed_after: float
    """From the blow to the thing that the fault takes away being there again: writes, or a deciding controller."""
    whole_after: float
    """From the blow, through the healing, to all replicas in sync; includes the time the story let it be broken."""
    master_epoch_before: int
    master_epoch_after: int
    master_before: int | None
    master_after: int | None
    ids_kept: bool


class Outcome(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A whole run. `problems` is empty if everything that is promised held."""

    engine: str
    remark: str
    replicas: int
    controllers: int
    seconds: float
    load: LoadResult
    longest_gap: float
    broker_ids: dict[str, int]
    """By label, at the end."""
    faults: tuple[FaultReport, ...]
    problems: tuple[str, ...]
    timeline: tuple[Entry, ...]
    folder: str
