"""A run as one HTML file that needs nothing else: no script, no font, no picture from elsewhere; opens offline.

Called by the job with what `history` keeps. Its policy (a meta element) lets a browser load nothing at all but the one
style in it, so that even a hole in the escaping could not run a script.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Final

from rocketmq_runtime.version import __version__
from rocketmq_verify.alignment import Map, Span, State, chart, totals
from rocketmq_verify.domain.findings import Kind, Severity
from rocketmq_verify.domain.repair import Repair
from rocketmq_verify.domain.verdict import Result, Verdict
from rocketmq_verify.history_rows import Figures, RunSummary
from rocketmq_verify.markup import Html, counted, el, join, table
from rocketmq_verify.pictures import alignment_map, lag_chart, seconds, size, swatch, throughput_chart
from rocketmq_verify.report_findings import checks_section, findings_section, repair_section, when
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
    State.SAMPLED: ("sampled", "compared by an earlier run, a sample of it again by this one"),
    State.EARLIER: ("verified earlier", "compared by an earlier run"),
    State.DIFFERING: ("differing", "not what the others have; every place is in the findings"),
    State.MISSING: ("missing", "should be there and is not"),
    State.BEHIND: ("behind the compared end", "not confirmed yet, or a stale tail; says nothing bad"),
    State.ALONE: ("nowhere else", "no other replica has it any more, nothing to compare it with"),
    State.UNREAD: ("not compared", "could not be read, or changed too much meanwhile"),
}
_UNCHECKED: Final = Checked()
_READING: Final = (
    (
        "Replicas of a group promise one thing: up to the confirm offset their commit logs are equal byte for byte. "
        "“Aligned up to X at epoch E” says that all bytes below X that at least two replicas have are equal, as far "
        "as this run or earlier ones read them; E is the master's term in which the last of them was written."
    ),
    (
        "A mismatch breaks that promise: what consumers get may depend on which replica leads. Where copies differ, "
        "checksums decide which one is right, then the majority; where neither can, the report says so."
    ),
    (
        "Everything else is information. A replica that lags, or has a tail that its master never confirmed, mends "
        "itself; nothing behind the confirm offset is ever called a mismatch."
    ),
    "Nothing here was changed or repaired: this program only reads.",
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
        segment_size: bytes of a file of the log; 0 where nobody knows.
        checked: what came of checking the log by itself.
        runs: earlier ones and this one, oldest first (`HistoryStore.last`); without a history none.
        repairs: what would repair it (`domain.repair`).
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
    unread = {name for one in verdict.findings if one.kind is Kind.UNREACHABLE for name in one.replicas}
    yield from _alignment(chart(spans, segment_size, unread=unread), spans)
    yield from findings_section(verdict)
    yield from repair_section(repairs)
    yield from _replicas(verdict)
    yield from checks_section(checked)
    yield from _history(runs)
    yield from _reading()


def _header(verdict: Verdict, figures: Figures, repairs: Sequence[Repair]) -> Html:
    look, word = _WORDS[verdict.result]
    links = [("findings", counted(len(verdict.findings), "finding"))] if verdict.findings else []
    links += [("repair", "what would repair it")] if repairs else []
    mismatches = sum(one.severity is Severity.MISMATCH for one in verdict.findings)
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
        ("read", "everything" if verdict.full or not verdict.old_bytes else "what is new, and a sample"),
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
        cls=look,
    )


def _alignment(drawn: Map | None, spans: Sequence[Span]) -> Iterable[Html]:
    yield el("h2", "Alignment", id="alignment")
    if drawn is None:
        yield el("p", "No replica has a byte that could be shown.", cls="quiet")
        return
    found = totals(spans)
    present = [state for state in STATES if any(own[state] for own in found.values()) or _in(drawn, state)]
    told = "; ".join(
        f"{name}: " + ", ".join(f"{size(own[state])} {STATES[state][0]}" for state in STATES if own[state])
        for name, own in list(found.items())[: len(drawn.replicas)]
    )
    per = drawn.width / drawn.segment_size
    column = f"{size(drawn.width)}" + (f", {per:.0f} files" if per > 1 else "")
    left_out = f" {drawn.left_out} more replicas are in the table only." if drawn.left_out else ""
    note = f"One row is a replica, one column {column}; gaps are files' borders. Arrows point at trouble.{left_out}"
    yield _figure("map", alignment_map(drawn, f"Map of what was compared. {told}"), note)
    items = [el("li", swatch(s), el("span", el("b", STATES[s][0]), f": {STATES[s][1]}")) for s in present]
    yield el("ul", *items, cls="legend")
    heads = ["replica", *(STATES[state][0] for state in present)]
    rows = [
        [name, *(size(own[state]) if own[state] else "-" for state in present)]
        for name, own in list(found.items())[:MOST_ROWS]
    ]
    numbers = table(heads, rows, caption="Bytes of each replica's log, by what is known of them", cls="numbers")
    yield el("details", el("summary", "The same in numbers"), numbers)


def _figure(name: str, picture: Html, note: str) -> Html:
    """On a narrow screen a picture scrolls, by keyboard too: shrunk, nobody could read it."""
    framed = el("div", picture, cls="scroll", tabindex=0, role="region", aria_label=name)
    return el("figure", framed, el("figcaption", note))


def _in(drawn: Map, state: State) -> bool:
    return any(cell.state is state for cell in drawn.cells)


def _replicas(verdict: Verdict) -> Iterable[Html]:
    yield el("h2", "Replicas", id="replicas")
    rows: list[list[str | Html]] = []
    for one in verdict.replicas[:MOST_ROWS]:
        lag = max(verdict.confirm_offset - one.max_offset, 0)
        compared = "-" if one.compared_up_to is None else f"{one.compared_from} to {one.compared_up_to}"
        epochs = [f"{epoch} from {start}" for epoch, start in one.epochs[-MOST_EPOCHS:]]
        cut = len(one.epochs) - len(epochs)
        tail = epochs[-1] if epochs else "none"
        more = el("ul", *(el("li", line) for line in reversed(epochs)), f"and {cut} older" if cut else None)
        listed = el("details", el("summary", tail), more) if len(epochs) > 1 else tail
        rows.append(
            [
                one.name,
                "-" if one.broker_id is None else str(one.broker_id),
                el("span", "master", cls="badge") if one.master else "",
                str(one.min_offset),
                str(one.confirm_offset),
                str(one.max_offset),
                size(lag) if lag else "0",
                compared,
                listed,
            ]
        )
    heads = ["replica", "brokerId", "", "min", "confirm", "max", "lag", "compared", "epochs, the last first"]
    yield table(heads, rows, caption="Offsets as each replica says them", empty="No replica could be read.")
    if verdict.moved:
        yield el("p", f"Not judged, rebuilt or emptied while the run went on: {', '.join(verdict.moved)}")


def _history(runs: Sequence[RunSummary]) -> Iterable[Html]:
    yield el("h2", "Over time", id="history")
    if not runs:
        yield el("p", "No history is kept. With --history PATH every run adds a point here.", cls="quiet")
        return
    last = runs[-1]
    lags = ", ".join(f"{one.name} {size(last.lag(one))}" for one in last.replicas[:MOST_ROWS])
    if any(run.replicas for run in runs):
        told = f"Lag of each replica in {len(runs)} runs; in the last: {lags}"
        yield _figure("lag", lag_chart(runs, told), "How far each replica was behind, at each run.")
    rates = [run.bytes_per_second for run in runs if run.bytes_per_second]
    if rates:
        told = f"Reading speed of {len(rates)} runs, from {size(min(rates))} to {size(max(rates))} a second"
        note = "How fast all replicas together were read and digested, at each run."
        yield _figure("reading speed", throughput_chart(runs, told), note)
    rows = [
        [
            when(run.started_ms),
            _WORDS[run.result][1],
            "-" if run.aligned_up_to is None else str(run.aligned_up_to),
            str(run.mismatches),
            "everything" if run.full else "new, sample",
            size(run.compared_bytes),
            seconds(run.seconds),
            size(max((run.lag(one) for one in run.replicas), default=0)),
        ]
        for run in reversed(runs[-MOST_ROWS:])
    ]
    heads = ["run", "result", "aligned up to", "mismatches", "read", "compared", "time", "largest lag"]
    yield el("details", el("summary", f"The last {len(rows)} runs"), table(heads, rows, caption="Newest first"))


def _reading() -> Iterable[Html]:
    yield el("h2", "How to read this", id="reading")
    for text in _READING:
        yield el("p", text)
