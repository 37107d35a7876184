"""The report's sections for findings, repairs, and the log by itself. Called by `html_report`."""

from collections.abc import Iterable, Sequence
from typing import Final

from rocketmq_verify.domain.findings import Severity
from rocketmq_verify.domain.repair import Repair
from rocketmq_verify.domain.reports import FindingReport, RecordReport
from rocketmq_verify.domain.times import when
from rocketmq_verify.domain.verdict import Verdict
from rocketmq_verify.report.hex_view import hex_view
from rocketmq_verify.report.markup import Html, counted, el, table
from rocketmq_verify.report.pictures import size
from rocketmq_verify.run import Checked

MOST_FINDINGS: Final = 100
MOST_HEX: Final = 32
"""Findings whose bytes are shown."""
MOST_REPAIRS: Final = 50
MOST_TOPICS: Final = 50

_STYLE: Final = {Severity.MISMATCH: "bad", Severity.UNVERIFIED: "unsure", Severity.INFORMATION: ""}


def findings_section(verdict: Verdict) -> Iterable[Html]:
    """Every finding, those that break the promise first."""
    yield el("h2", "Findings", id="findings")
    if not verdict.findings:
        yield el("p", "None. Everything that was compared is equal.", cls="quiet")
        return
    shown = verdict.findings[:MOST_FINDINGS]
    for number, finding in enumerate(shown, 1):
        yield _finding(number, finding)
    if rest := len(verdict.findings) - len(shown):
        yield el("p", f"In the JSON of this run (-o json): {counted(rest, 'more finding')}.")


def repair_section(repairs: Sequence[Repair]) -> Iterable[Html]:
    """The steps in order; empty if nothing has to be done."""
    if not repairs:
        return
    yield el("h2", "Repair", id="repair")
    yield el(
        "p", "Repair one replica after the other, the next only when the group is aligned again. Nothing was executed."
    )
    for plan in repairs[:MOST_REPAIRS]:
        steps = [el("li", step.text, *(el("pre", command) for command in step.commands)) for step in plan.steps]
        why = el("p", plan.why, cls="quiet")
        yield el("article", el("h3", plan.replica or "All replicas"), why, el("ol", *steps))
    if len(repairs) > MOST_REPAIRS:
        yield el("p", f"{len(repairs) - MOST_REPAIRS} more: rocketmq-verify --plan prints all.")


def checks_section(checked: Checked) -> Iterable[Html]:
    """Whether the log is a chain of sound records, and consume queues point to them; empty if neither was checked."""
    if checked.structure is None and checked.queues is None:
        return
    yield el("h2", "The log by itself", id="structure")
    if (found := checked.structure) is not None:
        text = f"{found.records} sound records, {size(found.record_bytes)}; {found.fault_count} faults."
        yield el("p", f"All new bytes: {text}")
    if (queues := checked.queues) is not None:
        lag = f", {queues.lag} records not in their queue yet" if queues.lag else ""
        yield el(
            "p",
            f"Consume queues of all replicas: {queues.units} units point to their records{lag}; ",
            f"{queues.faults} faults.",
        )
        if queues.index_entries or queues.index_faults:
            text = f"{queues.index_entries} entries lead to their records; {queues.index_faults} faults."
            yield el("p", f"Index files of all replicas: {text}")
    topics = sorted(found.topics.items(), key=lambda item: (-item[1].bytes, item[0])) if found is not None else []
    if topics:
        rows = [[topic, str(count.records), size(count.bytes)] for topic, count in topics[:MOST_TOPICS]]
        left = f", the largest {MOST_TOPICS} of {len(topics)} topics" if len(topics) > MOST_TOPICS else ""
        listed = table(["topic", "records", "bytes"], rows, caption=f"In what was checked{left}", cls="numbers")
        yield el("details", el("summary", "Records by topic"), listed)


def _finding(number: int, finding: FindingReport) -> Html:
    style = _STYLE[finding.severity]
    badge = el("span", finding.kind.traits.title, cls=f"badge {style}".strip())
    facts = [el("div", el("dt", name), el("dd", value)) for name, value in _facts(finding)]
    return el(
        "article",
        el("h3", f"{number}. ", badge, " ", finding.detail),
        el("dl", *facts, cls="facts") if facts else None,
        hex_view(finding.copies) if number <= MOST_HEX else None,
        cls=style or None,
        id=f"finding-{number}",
    )


def _facts(finding: FindingReport) -> list[tuple[str, str]]:
    found = [("replica" if len(finding.replicas) == 1 else "replicas", ", ".join(finding.replicas))]
    if finding.end > finding.start:
        found.append(("bytes", f"{finding.start} to {finding.end} ({finding.end - finding.start})"))
    if finding.first_difference is not None:
        found.append(("first difference", str(finding.first_difference)))
    if finding.segment is not None:
        found.append(("file", finding.segment))
    if finding.epoch is not None:
        found.append(("epoch", str(finding.epoch)))
    if finding.record is not None:
        found += _record(finding.record)
    return found


def _record(record: RecordReport) -> list[tuple[str, str]]:
    fields = [
        ("topic", record.topic),
        ("queueId", record.queue_id),
        ("queueOffset", record.queue_offset),
        ("physical offset", record.physical_offset),
        ("size", record.size),
        ("stored", None if record.store_timestamp is None else when(record.store_timestamp)),
        ("keys", record.keys),
        ("msgId", record.unique_key),
    ]
    return [(name, str(value)) for name, value in fields if value is not None]
