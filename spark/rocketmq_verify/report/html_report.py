"""A run as one HTML file without any other file: no script, font or picture from elsewhere; it opens offline.

Called by `cli`. The file's policy (a meta element) lets a browser load only the one style in it, so that even a hole in
the escaping could not run a script.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Final

from rocketmq_runtime.version import __version__
from rocketmq_verify.alignment import Map, Span, chart, totals
from rocketmq_verify.domain.findings import Kind, Severity, State
from rocketmq_verify.domain.repair import Repair
from rocketmq_verify.domain.times import when
from rocketmq_verify.domain.verdict import Result, Verdict
from rocketmq_verify.history.runs import Figures, RunSummary
from rocketmq_verify.report.findings import checks_section, findings_section, repair_section
from rocketmq_verify.report.markup import Html, counted, el, join, table
from rocketmq_verify.report.pictures import alignment_map, lag_chart, seconds, size, swatch, throughput_chart
from rocketmq_verify.run import Checked, Run

MOST_EPOCHS: Final = 50
"""Of one replica, the newest."""
MOST_ROWS: Final = 100
"""Replicas, and runs, in a table."""

_WORDS: Final = {
    Result.ALIGNED: ("good", "Aligned"),
    Result.MISMATCH: ("bad", "Mismatch"),
    Result.UNVERIFIED: ("unsure", "Not verified"),
}
STATES: Final = {
    State.VERIFIED: ("verified now", "compared by this run, every byte"),
    State.EARLIER: ("verified earlier", "compared by an earlier run"),
    State.DIFFERING: ("differing", "other bytes than in the other replicas; every place is in the findings"),
    State.MISSING: ("missing", "should be there"),
    State.BEHIND: ("beyond the compared end", "not confirmed yet, or a stale tail; this is harmless"),
    State.ALONE: ("nowhere else", "no other replica still has it to compare with"),
    State.UNREAD: ("not compared", "could not be read, or changed too much during the run"),
}
_UNCHECKED: Final = Checked()
_READING: Final = (
    (
        "Up to the confirm offset, the commit logs of a group's replicas must be equal byte for byte. “Aligned up to X "
        "at epoch E” means: all bytes below X that at least two replicas have are equal, as far as this run or "
        "earlier ones read them, and the last of them was written in the master's epoch E."
    ),
    (
        "A mismatch breaks that promise: consumers may get other messages after a failover. If copies differ, "
        "checksums decide which one is right, then the majority; if neither can, the report shows “unknown”."
    ),
    (
        "Everything else is information. A replica that lags, or has a tail that its master never confirmed, recovers "
        "by itself; bytes beyond the confirm offset are never a mismatch."
    ),
    "Nothing was changed or repaired: this program only reads.",
)


def page(run: Run) -> str:
    """The file's text, of a run."""
    return render(
        run.verdict,
        spans=run.spans,
        segment_size=run.plan.segment_size,
        figures=run.figures,
        checked=run.checked,
        runs=run.earlier,
        repairs=run.repairs,
        version=__version__,
    )


def render(
    verdict: Verdict,
    *,
    spans: Sequence[Span],
    segment_size: int,
    figures: Figures,
    checked: Checked = _UNCHECKED,
    runs: Sequence[RunSummary] = (),
    repairs: Sequence[Repair] = (),
    version: str = "",
) -> str:
    """The file's text.

    Args:
        spans: `alignment.spans` of this run.
        segment_size: bytes of a file of the log; 0: unknown.
        checked: results of checking the log by itself.
        runs: earlier ones and this one, oldest first (`HistoryStore.last`); empty without a history.
        repairs: plans of `domain.repair`.
        version: of this program.
    """
    style = files("rocketmq_verify").joinpath("report.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    title = f"{_WORDS[verdict.result][1]}: {verdict.group or 'commit logs'}"
    head = join(
        [
            el("meta", charset="utf-8"),
            Html(  # the digest is of our own style
                '<meta http-equiv="Content-Security-Policy" '
                f"content=\"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'\">"
            ),
            el("meta", name="viewport", content="width=device-width, initial-scale=1"),
            el("meta", name="referrer", content="no-referrer"),
            el("title", title),
            Html(f"<style>{style}</style>"),
        ],
        "\n",
    )
    sections = _sections(verdict, checked, spans=spans, segment_size=segment_size, runs=runs, repairs=repairs)
    body = join(
        [
            _header(verdict, figures, repairs),
            el("main", *sections),
            el("footer", f"rocketmq-verify {version}".strip(), " · all offsets are physical, in bytes, ends exclusive"),
        ],
        "\n",
    )
    return f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'


def _sections(
    verdict: Verdict,
    checked: Checked,
    *,
    spans: Sequence[Span],
    segment_size: int,
    runs: Sequence[RunSummary],
    repairs: Sequence[Repair],
) -> Iterable[Html]:
    unread = {name for finding in verdict.findings if finding.kind is Kind.UNREACHABLE for name in finding.replicas}
    yield from _alignment(chart(spans, segment_size, unread=unread), spans)
    yield from findings_section(verdict)
    yield from repair_section(repairs)
    yield from _replicas(verdict)
    yield from checks_section(checked)
    yield from _history(runs)
    yield from _reading()


def _header(verdict: Verdict, figures: Figures, repairs: Sequence[Repair]) -> Html:
    style, word = _WORDS[verdict.result]
    links = [("findings", counted(len(verdict.findings), "finding"))] if verdict.findings else []
    links += [("repair", "what would repair it")] if repairs else []
    mismatches = sum(finding.severity is Severity.MISMATCH for finding in verdict.findings)
    others = len(verdict.findings) - mismatches
    up_to = verdict.aligned_up_to
    rate = verdict.read_bytes / figures.reading_seconds if figures.reading_seconds else 0.0
    facts: list[tuple[str, str]] = [
        ("aligned up to", "-" if up_to is None else f"{up_to} ({size(up_to)})"),
        ("at epoch", "-" if verdict.epoch is None else str(verdict.epoch)),
        ("confirm offset of the group", f"{verdict.confirm_offset}"),
        (
            "findings",
            f"{counted(mismatches, 'mismatch', 'mismatches')}, {counted(others, 'other')}",
        ),
        ("read", "everything" if verdict.full or not verdict.old_bytes else "new and oldest bytes"),
        ("new since the last run", size(verdict.new_bytes)),
        ("compared", f"{size(verdict.compared_bytes)} of the log, {size(verdict.read_bytes)} with all replicas"),
        ("time", seconds(figures.seconds) + (f", reading at {size(rate)}/s" if rate else "")),
    ]
    if figures.travelled_bytes:
        facts.append(("over the network", size(figures.travelled_bytes)))
    return el(
        "header",
        el("p", f"Commit logs of {verdict.group or 'a group'}, compared at {when(figures.started_ms)}", cls="over"),
        el("h1", word),
        el("p", verdict.summary, cls="sentence"),
        el("p", join([el("a", text, href=f"#{id_}") for id_, text in links], " · "), cls="links") if links else None,
        el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in facts), cls="facts"),
        cls=style,
    )


def _alignment(drawn: Map | None, spans: Sequence[Span]) -> Iterable[Html]:
    yield el("h2", "Alignment", id="alignment")
    if drawn is None:
        yield el("p", "No replica has any bytes to show.", cls="quiet")
        return
    found = totals(spans)
    present = [state for state in STATES if any(own[state] for own in found.values()) or _in(drawn, state)]
    described = "; ".join(
        f"{name}: " + ", ".join(f"{size(own[state])} {STATES[state][0]}" for state in STATES if own[state])
        for name, own in list(found.items())[: len(drawn.replicas)]
    )
    per = drawn.width / drawn.segment_size
    column = f"{size(drawn.width)}" + (f", {per:.0f} files" if per > 1 else "")
    left_out = f" {drawn.left_out} more replicas are in the table only." if drawn.left_out else ""
    note = f"One row is a replica, one column {column}; gaps are files' borders. Arrows mark problems.{left_out}"
    yield _figure("map", alignment_map(drawn, f"Map of what was compared. {described}"), note)
    items = [el("li", swatch(s), el("span", el("b", STATES[s][0]), f": {STATES[s][1]}")) for s in present]
    yield el("ul", *items, cls="legend")
    heads = ["replica", *(STATES[state][0] for state in present)]
    rows = [
        [name, *(size(own[state]) if own[state] else "-" for state in present)]
        for name, own in list(found.items())[:MOST_ROWS]
    ]
    numbers = table(heads, rows, caption="Bytes of each replica's log, by state", cls="numbers")
    yield el("details", el("summary", "The same in numbers"), numbers)


def _figure(name: str, picture: Html, note: str) -> Html:
    """On a narrow screen a picture scrolls, by keyboard too: it would be too small to read if it shrank."""
    framed = el("div", picture, cls="scroll", tabindex=0, role="region", aria_label=name)
    return el("figure", framed, el("figcaption", note))


def _in(drawn: Map, state: State) -> bool:
    return any(cell.state is state for cell in drawn.cells)


def _replicas(verdict: Verdict) -> Iterable[Html]:
    yield el("h2", "Replicas", id="replicas")
    rows: list[list[str | Html]] = []
    for replica in verdict.replicas[:MOST_ROWS]:
        lag = max(verdict.confirm_offset - replica.max_offset, 0)
        compared = "-" if replica.compared_up_to is None else f"{replica.compared_from} to {replica.compared_up_to}"
        epochs = [f"{epoch} from {start}" for epoch, start in replica.epochs[-MOST_EPOCHS:]]
        cut = len(replica.epochs) - len(epochs)
        tail = epochs[-1] if epochs else "none"
        more = el("ul", *(el("li", line) for line in reversed(epochs)), f"and {cut} older" if cut else None)
        listed = el("details", el("summary", tail), more) if len(epochs) > 1 else tail
        rows.append(
            [
                replica.name,
                "-" if replica.broker_id is None else str(replica.broker_id),
                el("span", "master", cls="badge") if replica.master else "",
                str(replica.min_offset),
                str(replica.confirm_offset),
                str(replica.max_offset),
                size(lag) if lag else "0",
                compared,
                listed,
            ]
        )
    heads = ["replica", "brokerId", "", "min", "confirm", "max", "lag", "compared", "epochs, the last first"]
    yield table(heads, rows, caption="Offsets as each replica reports them", empty="No replica could be read.")
    if verdict.moved:
        yield el("p", f"Not judged, because rebuilt or emptied during the run: {', '.join(verdict.moved)}")


def _history(runs: Sequence[RunSummary]) -> Iterable[Html]:
    yield el("h2", "Over time", id="history")
    if not runs:
        yield el("p", "No history is kept. With --history PATH every run adds a point here.", cls="quiet")
        return
    last = runs[-1]
    lags = ", ".join(f"{replica.name} {size(last.lag(replica))}" for replica in last.replicas[:MOST_ROWS])
    if any(run.replicas for run in runs):
        described = f"Lag of each replica in {len(runs)} runs; in the last: {lags}"
        yield _figure("lag", lag_chart(runs, described), "How far each replica was behind, at each run.")
    rates = [run.bytes_per_second for run in runs if run.bytes_per_second]
    if rates:
        described = f"Reading speed of {len(rates)} runs, from {size(min(rates))} to {size(max(rates))} a second"
        note = "How fast all replicas together were read and digested, at each run."
        yield _figure("reading speed", throughput_chart(runs, described), note)
    rows = [
        [
            when(run.started_ms),
            _WORDS[run.result][1],
            "-" if run.aligned_up_to is None else str(run.aligned_up_to),
            str(run.mismatches),
            "everything" if run.full else "new, oldest",
            size(run.compared_bytes),
            seconds(run.seconds),
            size(max((run.lag(replica) for replica in run.replicas), default=0)),
        ]
        for run in reversed(runs[-MOST_ROWS:])
    ]
    heads = ["run", "result", "aligned up to", "mismatches", "read", "compared", "time", "largest lag"]
    yield el("details", el("summary", f"The last {len(rows)} runs"), table(heads, rows, caption="Newest first"))


def _reading() -> Iterable[Html]:
    yield el("h2", "How to read this", id="reading")
    for text in _READING:
        yield el("p", text)
