"""A run for people, as plain text."""

from collections.abc import Iterator, Sequence
from typing import Final

from rocketmq_verify.domain.repair import NOTHING_TO_DO
from rocketmq_verify.domain.reports import FindingReport
from rocketmq_verify.domain.times import when
from rocketmq_verify.domain.verdict import ReplicaReport
from rocketmq_verify.report.left_out import left_out
from rocketmq_verify.report.markup import visible
from rocketmq_verify.run import LedgerReport, Run
from rocketmq_verify.sizes import format_bytes

_HEX_LINE: Final = 16
MOST_TOPICS: Final = 8
LONGEST_LINE: Final = 64 << 10


def text(run: Run, *, plan: bool) -> str:
    """Lines, the last one ended. `plan`: with the steps of a repair.

    Topics and keys come from messages: control characters are escaped.
    """
    return "".join(f"{visible(line, LONGEST_LINE)}\n" for line in _lines(run, plan=plan))


def _lines(run: Run, *, plan: bool) -> Iterator[str]:
    verdict = run.verdict
    yield f"{verdict.group + ': ' if verdict.group else ''}{verdict.summary}"
    yield ""
    yield from _table(verdict.replicas)
    yield ""
    yield from _work(run)
    for finding in verdict.findings:
        yield ""
        yield from _finding(finding)
    if plan:
        yield ""
        yield from _plan(run)
    if run.history_error:
        yield ""
        yield f"This run is not in the history: {run.history_error}"


def _table(replicas: Sequence[ReplicaReport]) -> Iterator[str]:
    rows = [("replica", "id", "from", "confirmed", "end", "epoch", "compared")]
    for replica in replicas:
        compared = "nothing" if replica.compared_up_to is None else f"{replica.compared_from}..{replica.compared_up_to}"
        rows.append(
            (
                replica.name + (" (master)" if replica.master else ""),
                "-" if replica.broker_id is None else str(replica.broker_id),
                str(replica.min_offset),
                str(replica.confirm_offset),
                str(replica.max_offset),
                str(replica.epochs[-1][0]) if replica.epochs else "-",
                compared,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        yield "  ".join(cells).rstrip()


def _work(run: Run) -> Iterator[str]:
    verdict, seconds, checked = run.verdict, run.timings, run.checked
    scan = f" in {seconds.scan:.2f} s" if seconds.scan else ""
    of_old = f", {format_bytes(verdict.old_bytes)} compared before" if verdict.old_bytes else ""
    of_old += ", everything read" if verdict.full else ""
    yield (
        f"Compared {format_bytes(verdict.compared_bytes)} of the log in {verdict.chunks} chunks, "
        f"{format_bytes(verdict.read_bytes)} read{scan} ({format_bytes(verdict.new_bytes)} new{of_old})."
    )
    if checked.structure is not None:
        found = checked.structure
        yield (f"Structure: {found.records} records, {format_bytes(found.record_bytes)}, {found.fault_count} faults.")
        topics = sorted(found.topics.items(), key=lambda item: (-item[1].records, item[0]))
        named = ", ".join(f"{topic} {count.records}" for topic, count in topics[:MOST_TOPICS])
        more = f", {len(topics) - MOST_TOPICS} more topics" if len(topics) > MOST_TOPICS else ""
        if named:
            yield f"Records by topic: {named}{more}."
    if checked.queues is not None:
        lag = f", {checked.queues.lag} records without a unit yet" if checked.queues.lag else ""
        yield f"Consume queues: {checked.queues.units} units checked{lag}, {checked.queues.faults} faults."
        if checked.queues.index_entries or checked.queues.index_faults:
            yield f"Index files: {checked.queues.index_entries} entries checked, {checked.queues.index_faults} faults."
    if run.oldest is not None:
        since, offset = when(run.oldest.since_ms), run.oldest.start
        yield f"Every byte that was compared was read since {since}; the oldest is at offset {offset}."
    if run.ledger is not None:
        yield _ledger(run.ledger)
    if unseen := left_out(run):
        yield f"Not looked at: {'; '.join(unseen)}."
    spark = f"{seconds.session:.1f} s of them until Spark was ready" if seconds.session else "without Spark"
    yield f"{seconds.total:.1f} s in all, {spark}."


def _ledger(found: LedgerReport) -> str:
    since = "" if found.oldest_ms is None else f", the oldest as at {when(found.oldest_ms)}"
    done = [f"{found.confirmed} are what they were{since}"] if found.confirmed else []
    done += [f"{found.changed} are not"] if found.changed else []
    done += [f"{found.entered} are new"] if found.entered else []
    size = format_bytes(found.cell_size)
    return "; ".join([f"Ledger: {found.cells} cells of {size}", *done, *found.notes]) + "."


def _finding(finding: FindingReport) -> Iterator[str]:
    yield f"{finding.severity.value.upper()} {finding.kind.value}: {finding.detail}"
    place = [f"offsets {finding.start}..{finding.end}"] if finding.end > finding.start else []
    if finding.first_difference is not None:
        place.append(f"first difference at {finding.first_difference}")
    if finding.segment is not None:
        place.append(f"file {finding.segment}")
    if finding.epoch is not None:
        place.append(f"epoch {finding.epoch}")
    if place:
        yield "  " + ", ".join(place)
    record = finding.record
    if record is not None and record.topic is not None:
        keys = f", keys {record.keys}" if record.keys else ""
        identity = f", msgId {record.unique_key}" if record.unique_key else ""
        yield (
            f"  topic {record.topic}, queue {record.queue_id}, queue offset {record.queue_offset}, physical offset "
            f"{record.physical_offset}{keys}{identity}"
        )
    for copy in finding.copies:
        standing = {True: "right", False: "WRONG", None: "unknown"}[copy.right]
        yield f"  {copy.replica}: {standing}, {copy.reason}"
        data = bytes.fromhex(copy.hex)
        for start in range(0, len(data), _HEX_LINE):
            line = data[start : start + _HEX_LINE]
            shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
            yield f"    {copy.hex_offset + start:>12}  {line.hex(' '):<{3 * _HEX_LINE}} {shown}"


def _plan(run: Run) -> Iterator[str]:
    if not run.repairs:
        yield f"Plan: {NOTHING_TO_DO}."
        return
    yield "Plan (nothing was executed):"
    for repair in run.repairs:
        yield f"{repair.replica or 'all'}: {repair.why}"
        for number, step in enumerate(repair.steps, 1):
            yield f"  {number}. {step.text}"
            for command in step.commands:
                yield f"       {command}"
