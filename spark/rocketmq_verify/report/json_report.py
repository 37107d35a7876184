"""A run as JSON: the verdict's keys and more of the run, in camelCase."""

import msgspec

from rocketmq_formats.soundness.structure import Structure
from rocketmq_verify.domain.repair import Repair
from rocketmq_verify.report.left_out import left_out
from rocketmq_verify.run import Run

MOST_TOPICS = 1000
"""Listed one by one, the largest first."""


class StepReport(msgspec.Struct, frozen=True, rename="camel"):
    """`repair.Step`."""

    text: str
    commands: tuple[str, ...]


class RepairReport(msgspec.Struct, frozen=True, rename="camel"):
    replica: str | None
    why: str
    steps: tuple[StepReport, ...]


class OldestReport(msgspec.Struct, frozen=True, rename="camel"):
    """What was not read for the longest time: every byte that was compared was read at this time or later."""

    since_ms: int
    """The start of the run that read it, in milliseconds since 1970."""
    offset: int


class TopicReport(msgspec.Struct, frozen=True, rename="camel"):
    """A topic in the checked part of the log."""

    topic: str
    records: int
    bytes: int


class StructureReport(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The structural check."""

    records: int
    bytes: int
    blanks: int
    blank_bytes: int
    skipped_bytes: int
    faults: int
    topics: tuple[TopicReport, ...]


def encode(run: Run, *, plan: bool) -> bytes:
    """The JSON text, indented. `plan`: with the steps that would repair what was found."""
    whole = dict(msgspec.to_builtins(run.verdict))
    structure = run.checked.structure
    whole["runId"] = run.run_id
    whole["structure"] = None if structure is None else _structure(structure)
    whole["queues"] = run.checked.queues
    whole["notLookedAt"] = left_out(run)
    whole["lastFullMs"] = run.last_full_ms
    whole["oldestRead"] = None if run.oldest is None else OldestReport(run.oldest.since_ms, run.oldest.start)
    whole["ledger"] = run.ledger
    whole["travelledBytes"] = run.figures.travelled_bytes
    whole["startedMs"] = run.figures.started_ms
    whole["seconds"] = run.timings
    if run.history_error:
        whole["historyError"] = run.history_error
    if plan:
        whole["plan"] = [_repair(repair) for repair in run.repairs]
    return msgspec.json.format(msgspec.json.encode(whole), indent=2)


def _structure(found: Structure) -> StructureReport:
    largest = sorted(found.topics.items(), key=lambda item: (-item[1].bytes, item[0]))[:MOST_TOPICS]
    return StructureReport(
        records=found.records,
        bytes=found.record_bytes,
        blanks=found.blanks,
        blank_bytes=found.blank_bytes,
        skipped_bytes=found.skipped_bytes,
        faults=found.fault_count,
        topics=tuple(TopicReport(topic, count.records, count.bytes) for topic, count in largest),
    )


def _repair(repair: Repair) -> RepairReport:
    steps = tuple(StepReport(step.text, step.commands) for step in repair.steps)
    return RepairReport(repair.replica, repair.why, steps)
