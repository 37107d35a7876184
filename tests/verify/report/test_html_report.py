"""The report: one file, nothing foreign in it as markup, never large."""

import re
from html.parser import HTMLParser
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.structure import Structure, TopicCount
from rocketmq_verify.alignment import MOST_CELLS, MOST_REPLICAS, Span, chart, spans, totals
from rocketmq_verify.domain.findings import Finding, Kind, State
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.domain.repair import repairs
from rocketmq_verify.domain.reports import CopyReport
from rocketmq_verify.history.runs import summary
from rocketmq_verify.report.hex_view import hex_view
from rocketmq_verify.report.html_report import render
from rocketmq_verify.report.markup import Html, el, table, visible
from rocketmq_verify.report.pictures import COLOURS, alignment_map, byte_ticks, size
from rocketmq_verify.run import Checked, QueueSummary
from tests.verify.report.report_kit import GROUP, NOW, SEGMENT, A, B, C, figures, flipped, plan, replica, verdict

EVIL = "<script>alert('x')</script>\"'&"


class Page(HTMLParser):
    """What a browser would see."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page(findings: tuple[Finding, ...] = (), runs: int = 3) -> str:
    said = verdict(findings=findings)
    rows = [summary(GROUP, f"r{at}", NOW + at, said, figures(NOW + at * 3_600_000)) for at in range(runs)]
    steps = repairs(findings, replicas=[A, B, C], masters=[A], group="orders", on_kubernetes=True)
    return render(
        said, spans=spans(said, plan()), segment_size=SEGMENT, figures=figures(), runs=rows, repairs=steps, version="1"
    )


def test_spans_have_the_state_of_every_byte() -> None:
    said = verdict(
        [
            replica(A),
            replica(B, 9 * SEGMENT, compared_up_to=8 * SEGMENT),
            replica(C, min_offset=2 * SEGMENT, compared_from=None, compared_up_to=None),
        ],
        [flipped(5 * SEGMENT + 5000)],
    )
    found = spans(said, plan([Extent(SEGMENT, 2 * SEGMENT), Extent(6 * SEGMENT, 8 * SEGMENT)]))
    bad = 5 * SEGMENT + 4800
    assert found == (
        Span(A, 0, SEGMENT, State.EARLIER),
        Span(A, SEGMENT, 2 * SEGMENT, State.VERIFIED),
        Span(A, 2 * SEGMENT, 6 * SEGMENT, State.EARLIER),
        Span(A, 6 * SEGMENT, 8 * SEGMENT, State.VERIFIED),
        Span(B, 0, SEGMENT, State.EARLIER),
        Span(B, SEGMENT, 2 * SEGMENT, State.VERIFIED),
        Span(B, 2 * SEGMENT, bad, State.EARLIER),
        Span(B, bad, bad + 500, State.DIFFERING),
        Span(B, bad + 500, 6 * SEGMENT, State.EARLIER),
        Span(B, 6 * SEGMENT, 8 * SEGMENT, State.VERIFIED),
        Span(B, 8 * SEGMENT, 9 * SEGMENT, State.BEHIND),
        Span(C, 2 * SEGMENT, 8 * SEGMENT, State.UNREAD),
    )


def test_bytes_that_no_run_has_read_are_not_those_of_an_earlier_run() -> None:
    read, left = Extent(0, 2 * SEGMENT), Extent(6 * SEGMENT, 8 * SEGMENT)
    states = [(span.start, span.end, span.state) for span in spans(verdict(), plan([read]), unread=[left])][:3]
    assert states == [
        (*msgspec.structs.astuple(read), State.VERIFIED),
        (read.end, left.start, State.EARLIER),
        (*msgspec.structs.astuple(left), State.UNREAD),
    ]


def test_bytes_without_another_copy_and_holes_are_shown() -> None:
    hole = Finding(
        kind=Kind.MISSING_SEGMENT, replicas=(A,), extent=Extent(3 * SEGMENT, 4 * SEGMENT), detail="a file is missing"
    )
    said = verdict([replica(A), replica(B, min_offset=SEGMENT, compared_from=SEGMENT)], [hole])
    assert [(span.start // SEGMENT, span.end // SEGMENT, span.state) for span in spans(said, plan())] == [
        (0, 1, State.ALONE),
        (1, 3, State.EARLIER),
        (3, 4, State.MISSING),
        (4, 6, State.EARLIER),
        (6, 8, State.VERIFIED),
        (1, 6, State.EARLIER),
        (6, 8, State.VERIFIED),
    ]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([A, B, C]), st.integers(0, 10**7), st.integers(1, 10**6), st.sampled_from(list(State))
        ),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from([4096, 3 * 4096, 1 << 20, 1 << 30]),
)
def test_a_map_has_few_columns_and_hides_no_trouble(
    made: list[tuple[ReplicaName, int, int, State]], segment: int
) -> None:
    given_spans = [Span(name, start, start + length, state) for name, start, length, state in made]
    drawn = chart(given_spans, segment)
    assert drawn is not None
    assert drawn.columns <= MOST_CELLS + 1
    assert segment % drawn.width == 0 or drawn.width % segment == 0
    for span in given_spans:
        if span.state is State.DIFFERING:
            column = (span.start - drawn.start) // drawn.width
            shown = [c for c in drawn.cells if c.replica == span.replica and c.first <= column < c.last]
            assert [cell.state for cell in shown] in ([State.DIFFERING], [State.MISSING])
    for name in drawn.replicas:
        own = [cell for cell in drawn.cells if cell.replica == name]
        assert all(one.last <= other.first for one, other in pairwise(own))


def test_replicas_that_could_not_be_read_have_a_row() -> None:
    drawn = chart([Span(A, 0, SEGMENT, State.VERIFIED)], SEGMENT, unread=[B])
    assert drawn is not None
    assert drawn.replicas == (A, B)
    assert drawn.cells[-1].state is State.UNREAD
    assert chart([], SEGMENT) is None


def test_a_log_that_has_hardly_begun_its_file_is_not_one_column() -> None:
    """One bad byte must not paint all of it."""
    bad = Span(A, 200_000, 200_001, State.DIFFERING)
    around = [Span(A, 0, bad.start, State.VERIFIED), bad, Span(A, bad.end, 461_482, State.VERIFIED)]
    drawn = chart(around, 64 << 20)
    assert drawn is not None
    assert (drawn.width, drawn.columns) == (4096, 113)
    assert [cell.state for cell in drawn.cells] == [State.VERIFIED, State.DIFFERING, State.VERIFIED]
    picture = Page(alignment_map(drawn, "told")).text
    for label in ("0 B", "128 KiB", "256 KiB", "384 KiB"):
        assert label in picture


def test_the_page_shows_the_structure_of_the_log() -> None:
    found = Structure(
        extent=Extent(0, 4000),
        first=0,
        next=4000,
        records=12,
        record_bytes=4000,
        topics={EVIL: TopicCount(records=12, bytes=4000)},
    )
    checked = Checked(structure=found, queues=QueueSummary(units=36, lag=2, superseded=0, faults=0))
    said = verdict()
    seen = Page(render(said, spans=spans(said, plan()), segment_size=SEGMENT, figures=figures(), checked=checked)).text
    for part in ("12 sound records, 3.91 KiB; 0 faults", "36 units", "2 records not in their queue yet", EVIL):
        assert part in seen, part


def test_more_replicas_than_fit_are_counted() -> None:
    drawn = chart([Span(ReplicaName(f"r{at}"), 0, 10, State.VERIFIED) for at in range(100)], SEGMENT)
    assert drawn is not None
    assert (len(drawn.replicas), drawn.left_out) == (MOST_REPLICAS, 100 - MOST_REPLICAS)


def test_totals_are_bytes() -> None:
    found = totals([Span(A, 0, 10, State.VERIFIED), Span(A, 10, 11, State.MISSING), Span(A, 11, 31, State.VERIFIED)])
    assert {state: count for state, count in found[A].items() if count} == {State.VERIFIED: 30, State.MISSING: 1}


def test_the_page_shows_the_findings() -> None:
    text = Page(page((flipped(),))).text
    for part in (
        "Mismatch", "orders-eu", "1234", "broker-a-1", "body CRC wrong", "differing", "order-7", "00000000000005242880",
        "kubectl rocketmq rebuild orders broker-a-1", "How to read this", "1 mismatch, 0 others",
    ):  # fmt: skip
        assert part in text, part


def test_the_page_is_well_formed_and_needs_nothing_else() -> None:
    seen = Page(page((flipped(),)))
    assert seen.open == []
    assert not set(seen.tags) & {"script", "link", "img", "iframe", "object", "image", "use", "foreignobject"}
    for name, value in seen.attributes:
        assert not name.startswith("on")
        assert name not in {"src", "href", "xlink:href", "style"} or value.startswith("#"), (name, value)
    policy = next(value for name, value in seen.attributes if name == "content" and "default-src" in value)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert seen.tags.count("h1") == 1
    assert seen.tags.count("svg") >= 3
    labels = [value for name, value in seen.attributes if name == "aria-label"]
    assert any("broker-a-1" in label and "differing" in label for label in labels)


def test_nothing_foreign_becomes_markup() -> None:
    name = ReplicaName(EVIL)
    found = msgspec.structs.replace(flipped(topic=EVIL, wrong=name), detail=EVIL, replicas=(name,))
    copies = tuple(msgspec.structs.replace(copy, replica=name, reason=EVIL, hex=EVIL) for copy in found.copies)
    found = msgspec.structs.replace(found, copies=copies)
    said = verdict([replica(A), msgspec.structs.replace(replica(B), name=name)], [found], group=EVIL, summary=EVIL)
    rows = [summary(GROUP, "r", NOW, said, figures())]
    seen = render(
        said,
        spans=spans(said, plan()),
        segment_size=SEGMENT,
        figures=figures(),
        runs=rows,
        repairs=repairs([found], replicas=[A, name], group=EVIL, on_kubernetes=True),
        version=EVIL,
    )
    assert "<script" not in seen
    assert "alert('x')" in Page(seen).text


@given(st.text(max_size=30))
def test_any_text_comes_out_as_text(text: str) -> None:
    seen = Page(el("p", text, title=text, cls=text))
    assert seen.tags == ["p"]
    assert seen.text == visible(text)
    assert dict(seen.attributes) == {"title": visible(text), "class": visible(text)}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\0b\n", r"a\x00b\x0a"),
        ("\u202eevil", r"\u202eevil"),
        ("\ud800", r"\ud800"),
        ("消息 é", "消息 é"),
        ("x" * 3000, "x" * 1999 + "…"),
    ],
)
def test_texts_hide_nothing(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_markup_is_built() -> None:
    assert el("a", "x<", Html("<b>y</b>"), None, 3, id="1", hidden=True, title=None) == (
        '<a id="1" hidden>x&lt;<b>y</b>3</a>'
    )
    assert table(["h"], [], caption="c", empty="none") == '<p class="quiet">none</p>'


def test_hex_marks_what_differs() -> None:
    copies = [
        CopyReport(replica=A, right=True, reason="", hex_offset=100, hex=bytes(range(60, 72)).hex()),
        CopyReport(replica=B, right=False, reason="bad", hex_offset=100, hex=(bytes(range(60, 70)) + b"\0\x01").hex()),
    ]
    seen = hex_view(copies)
    assert seen is not None
    assert re.findall("<mark>(.*?)</mark>", seen) == ["46", "47", "F", "G", "00", "01", ".", "."]
    assert Page(seen).text.count("100") == 1
    assert hex_view([]) is None
    assert hex_view([CopyReport(replica=A, right=None, reason="", hex_offset=0, hex="zz")]) is None


def test_copies_that_begin_apart_are_shown_by_their_places() -> None:
    copies = [
        CopyReport(replica=A, right=None, reason="", hex_offset=8, hex="0102"),
        CopyReport(replica=B, right=None, reason="", hex_offset=9, hex="02"),
    ]
    seen = hex_view(copies)
    assert seen is not None
    assert "<mark>··</mark> 02" in seen


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1_500_000, "1.43 MiB"), (1010 << 10, "1010 KiB")],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


@given(st.integers(0, 2**62))
def test_ticks_reach_the_largest(largest: int) -> None:
    ticks = byte_ticks(largest)
    assert ticks[0] == 0
    assert ticks[-1] >= largest
    assert 2 <= len(ticks) <= 6


def test_every_colour_is_known_to_the_style() -> None:
    style = page().partition("<style>")[2].partition("</style>")[0]
    for colour in COLOURS.values():
        assert f'[fill="{colour}"]' in style


def test_a_large_group_makes_no_large_page() -> None:
    """10,000 files, 32 replicas, 1000 runs, findings beyond all bounds."""
    names = [ReplicaName(f"broker-a-{at}") for at in range(32)]
    end = 10_000 << 30
    many = [replica(name, end, broker_id=1, epochs=tuple((e, e * 1000) for e in range(1000))) for name in names]
    found = [flipped(at << 30, wrong=B) for at in range(1, 9_000, 20)]
    said = verdict(many, found)
    what = plan([Extent(end // 2, end)], segment=1 << 30)
    rows = [summary(GROUP, f"r{at}", NOW + at, said, figures(NOW + at * 3_600_000)) for at in range(300)]
    shown = spans(said, what)
    seen = render(said, spans=shown, segment_size=1 << 30, figures=figures(), runs=rows)
    assert len(seen) < 700_000, len(seen)
    assert "In the JSON of this run (-o json): " in seen


def test_nothing_at_all_makes_a_page() -> None:
    nothing = replica(A, 0, compared_from=None, compared_up_to=None, epochs=())
    said = verdict([nothing], aligned_up_to=None, epoch=None, confirm_offset=0)
    seen = Page(render(said, spans=(), segment_size=0, figures=figures()))
    assert "No replica has any bytes" in seen.text
    assert "No history is kept" in seen.text
