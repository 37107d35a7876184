"""The report's pictures: altair's charts as static SVG, drawn by vl-convert; no script, no browser, no network.

Colours are those of a light page; `report.css` replaces them by value for a dark one, so charts use only the colours of
the palettes here. Altair takes half a second to import: only the report imports this module.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import altair as alt
import vl_convert as vlc

from rocketmq_verify.alignment import ALARMING, Map
from rocketmq_verify.domain.findings import State
from rocketmq_verify.history.runs import RunSummary
from rocketmq_verify.report.markup import Html, el, safe, visible

COLOURS: Final[Mapping[State, str]] = {
    State.VERIFIED: "#0b7a5b",
    State.EARLIER: "#b4dccb",
    State.ALONE: "#d5c5ec",
    State.BEHIND: "#c6ccd5",
    State.UNREAD: "#e9ecf0",
    State.DIFFERING: "#c8102e",
    State.MISSING: "#e08600",
}
SERIES: Final = ("#0072b2", "#d55e00", "#009e73", "#b0529e", "#ad7f00", "#3a9ad9", "#7a5cff", "#8a8f98")
INK: Final = "#3b4450"
GRID: Final = "#dfe3e8"
PAGE: Final = "#fffffe"
"""Of the page behind a chart, for gaps."""

MOST_RUNS: Final = 200
"""In a chart, the newest ones."""
MOST_SERIES: Final = 16
MOST_POINTS: Final = 1000
"""In a chart; of many replicas fewer runs are shown."""
LONGEST_NAME: Final = 40
_WIDTH: Final = 860
_MOST_TICKS: Final = 8
_FEWEST_TICKS: Final = 3
_MOST_BORDERS: Final = 80

_TIMES: Final = {
    "seconds": "%H:%M:%S",
    "minutes": "%H:%M",
    "hours": "%H:%M",
    "day": "%b %d",
    "date": "%b %d",
    "week": "%b %d",
    "month": "%b %Y",
    "quarter": "%b %Y",
    "year": "%Y",
}

Values: TypeAlias = list[dict[str, object]]


class Point(NamedTuple):
    """Of a chart over time."""

    time_ms: int
    series: str
    value: int


def size(count: float) -> str:
    """Bytes for people: `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(count) < 1024 or unit == "PiB":
            return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}" if count < 1000 else f"{count:.0f} {unit}"
        count /= 1024
    raise AssertionError


def seconds(count: float) -> str:
    """Time for people."""
    return f"{count:.1f} s" if count >= 1 else f"{count * 1000:.0f} ms"


def swatch(state: State) -> Html:
    """The map's colour for this state, for a legend beside the text that explains it."""
    rect = el("rect", width=14, height=14, rx=2, fill=COLOURS[state])
    return el("svg", rect, width=14, height=14, viewBox="0 0 14 14", aria_hidden="true", cls="swatch")


def alignment_map(of: Map, description: str) -> Html:
    """Replicas by ranges of the log; `description` is the same in words."""
    names = {name: visible(name, LONGEST_NAME) for name in of.replicas}
    values: Values = [
        {
            "replica": names[cell.replica],
            "start": of.start + cell.first * of.width,
            "end": of.start + cell.last * of.width,
            "middle": of.start + (cell.first + cell.last) * of.width / 2,
            "state": cell.state.value,
        }
        for cell in of.cells
    ]
    end = of.start + of.columns * of.width
    ticks = _file_ticks(of.start, end, of.segment_size)
    labels = json.dumps({str(tick): size(tick) for tick in ticks})
    x = (
        alt.X("start:Q")
        .scale(alt.Scale(domain=[of.start, end], nice=False, zero=False))
        .axis(
            alt.Axis(
                values=ticks, labelExpr=f"{labels}[datum.value]", title="physical offset", grid=False, labelFlush=True
            )
        )
    )
    y = alt.Y("replica:N").sort(list(names.values())).axis(alt.Axis(title=None, domain=False, ticks=False))
    y = y.scale(alt.Scale(paddingInner=0.42, paddingOuter=0.35))
    colour = alt.Color("state:N").scale(
        alt.Scale(domain=[state.value for state in State], range=[COLOURS[state] for state in State])
    )
    base = alt.Chart(alt.InlineData(values=values))
    layers: list[alt.Chart] = [base.mark_rect().encode(x=x, x2="end:Q", y=y, color=colour.legend(None))]
    borders = range(of.start + of.segment_size, end, of.segment_size)
    if len(borders) <= _MOST_BORDERS:
        lines: Values = [{"start": border} for border in borders]
        layers.append(alt.Chart(alt.InlineData(values=lines)).mark_rule(color=PAGE, strokeWidth=2).encode(x=x))
    alarms: Values = [value for value in values if value["state"] in ALARMING]
    pointers = alt.Chart(alt.InlineData(values=alarms)).mark_point(
        shape="triangle-down", filled=True, size=90, opacity=1, yOffset=-20
    )
    layers.append(pointers.encode(x=alt.X("middle:Q"), y=y, color=colour.legend(None)))
    height = 44 * len(of.replicas)
    return _drawn(alt.layer(*layers).properties(width=_WIDTH, height=height), description)


def lag_chart(runs: Sequence[RunSummary], description: str) -> Html:
    """How far each replica was behind what the group had confirmed, over the runs."""
    shown = runs[-MOST_RUNS:]
    names = sorted({point.name for run in shown for point in run.replicas})[:MOST_SERIES]
    shown = shown[-(MOST_POINTS // max(len(names), 1)) :]
    series = [visible(name, LONGEST_NAME) for name in names]
    points = [
        Point(run.started_ms, series[names.index(point.name)], run.lag(point))
        for run in shown
        for point in run.replicas
        if point.name in names
    ]
    return _over_time(points, series, "bytes behind the confirm offset", "", description)


def throughput_chart(runs: Sequence[RunSummary], description: str) -> Html:
    """How fast runs read all replicas together; runs that read nothing are left out."""
    kinds = ["new and oldest bytes", "everything"]
    points = [
        Point(run.started_ms, kinds[run.full], round(run.bytes_per_second))
        for run in runs[-MOST_RUNS:]
        if run.bytes_per_second
    ]
    return _over_time(points, kinds, "read of all replicas", "/s", description)


def _over_time(points: Sequence[Point], series: list[str], title: str, per: str, description: str) -> Html:
    values: Values = [{"time": point.time_ms, "series": point.series, "value": point.value} for point in points]
    first, last = min(point.time_ms for point in points), max(point.time_ms for point in points)
    margin = max((last - first) // 40, 1000)
    ticks = byte_ticks(max(point.value for point in points))
    labels = json.dumps({str(tick): size(tick) + per for tick in ticks})
    x = alt.X("time:T").scale(alt.Scale(type="utc", domain=[first - margin, last + margin]))
    x = x.axis(alt.Axis(title="time of the run (UTC)", grid=False, labelOverlap=True, tickCount=8, format=_TIMES))
    y = alt.Y("value:Q").scale(alt.Scale(domain=[0, ticks[-1]]))
    y = y.axis(alt.Axis(values=ticks, labelExpr=f"{labels}[datum.value]", title=title, domain=False, ticks=False))
    colours = [SERIES[at % len(SERIES)] for at in range(len(series))]
    legend = alt.Legend(title=None, orient="top", columns=4, symbolType="circle", labelLimit=260, columnPadding=36)
    colour = alt.Color("series:N").scale(alt.Scale(domain=series, range=colours)).legend(legend)
    base = alt.Chart(alt.InlineData(values=values)).encode(x=x, y=y, color=colour)
    # colours repeat for many replicas, and equal values overlap: widths and points help
    drawn = alt.layer(
        base.mark_line(strokeWidth=2, opacity=0.85), base.mark_point(filled=True, size=34, opacity=1)
    ).properties(width=_WIDTH - 40, height=170)
    return _drawn(drawn, description)


def byte_ticks(largest: int) -> list[int]:
    """From 0 to at least `largest`, five or fewer steps of 1, 2 or 5 times ten of a unit."""
    unit = 1
    while largest / unit >= 1024:
        unit *= 1024
    for step in (1, 2, 5, 10, 20, 50, 100, 200, 500):
        if step * unit * 5 >= largest:
            return [at * step * unit for at in range(max(-(-largest // (step * unit)), 1) + 1)]
    raise AssertionError


def _file_ticks(start: int, end: int, segment_size: int) -> list[int]:
    """Starts of files, evenly, few; of a log that has hardly any, places in them."""
    step = segment_size
    while (end - start) // step < _FEWEST_TICKS and step % 2 == 0:
        step //= 2
    while (end - start) / step > _MOST_TICKS:
        step *= 2
    return list(range(start, end + 1, step))


def _drawn(chart: alt.LayerChart | alt.FacetChart, description: str) -> Html:
    """SVG to be put into a page: labelled with `description` for screen readers, as wide as the page allows."""
    configured = (
        chart.configure(background="transparent", font="system-ui, sans-serif", aria=False)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=INK,
            titleColor=INK,
            gridColor=GRID,
            domainColor=GRID,
            tickColor=GRID,
            labelFontSize=12,
            titleFontSize=12,
            titleFontWeight="normal",
            titlePadding=8,
            labelPadding=6,
            labelLimit=260,
        )
        .configure_legend(labelColor=INK, labelFontSize=12, symbolStrokeWidth=0)
    )
    svg = vlc.vegalite_to_svg(configured.to_dict(), allowed_base_urls=[])
    head = re.match(r'<svg [^>]*?width="([0-9.]+)" height="([0-9.]+)"[^>]*>', svg)
    if head is None or "<script" in svg or "<foreignObject" in svg:
        raise ValueError(f"no picture: {svg[:100]}")
    opening = f'<svg viewBox="0 0 {head[1]} {head[2]}" class="chart" role="img" aria-label="'
    return Html(f'{opening}{safe(description)}"><title>{safe(description)}</title>{svg[head.end() :]}')
