"""One page per round that a person can read: faults, roles, acknowledged and lost messages over time. It needs no
network and no script; a place shows its text when the mouse is over it. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 1400
_LEFT, _RIGHT = 130, 20
_ROW = 22
_COLOURS = ("#3b6ea5", "#c26a2d", "#4f8f4f", "#8a5aa5", "#777777")
_STYLE = """
body { font: 14px system-ui, sans-serif; margin: 24px; color: #222; }
svg text { font: 12px system-ui, sans-serif; }
table { border-collapse: collapse; } td { padding: 2px 12px 2px 0; vertical-align: top; }
.bad { color: #b00020; }
"""


class Event(NamedTuple):
    """A line of the nemesis's diary."""

    at: float
    what: str
    kind: str = "note"
    """`fault`: begins here; `healed`: that fault ends here; `note`: more about it."""

    def __str__(self) -> str:
        return f"{self.at:.3f} {'  ' if self.kind == 'note' else ''}{self.what}"


class Roles(NamedTuple):
    """What the controllers answered from `at` on."""

    at: float
    master: int | None
    master_epoch: int
    in_sync: frozenset[int]


class Round(NamedTuple):
    """What a page shows. Times are seconds of one steady clock."""

    title: str
    violations: Sequence[str]
    events: Sequence[Event]
    roles: Sequence[Roles]
    acknowledged: Sequence[float]
    lost: Sequence[float]
    """When the messages that are missing were acknowledged."""


def page(shown: Round) -> str:
    """HTML."""
    title, begin = escape(shown.title), _begin(shown)
    verdict = "".join(f'<li class="bad">{escape(violation)}</li>' for violation in shown.violations)
    rows = "".join(
        f"<tr><td>{event.at - begin:.3f}</td><td>{'&emsp;' * (event.kind == 'note')}{escape(event.what)}</td></tr>"
        for event in shown.events
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"<h1>{title}</h1><ul>{verdict or '<li>No promise was broken.</li>'}</ul>{_picture(shown)}"
        f"<h2>Diary</h2><p>In seconds, as above.</p><table>{rows}</table></html>\n"
    )


def _times(shown: Round) -> Iterator[float]:
    yield from (event.at for event in shown.events)
    yield from (roles.at for roles in shown.roles)
    yield from shown.acknowledged
    yield from shown.lost


def _begin(shown: Round) -> float:
    return min(_times(shown), default=0.0)


class _Picture:
    """An SVG that grows downwards, lane by lane."""

    def __init__(self, begin: float, seconds: float) -> None:
        self._begin = begin
        self._seconds = seconds
        self._parts: list[str] = []
        self._top = _ROW
        for second in range(0, int(seconds) + 1, 10 if seconds > 30 else 5):
            self._parts.append(f'<text x="{self.x(begin + second)}" y="12">{second} s</text>')

    def x(self, at: float) -> float:
        return round(_LEFT + (at - self._begin) / self._seconds * (WIDTH - _LEFT - _RIGHT), 1)

    def bar(
        self, start: float, end: float, colour: str, what: str, *, down: float = 0, height: float = _ROW - 6
    ) -> None:
        """A bar from `start` to `end` seconds that shows `what`, `down` pixels below the lane's top."""
        width = max(self.x(end) - self.x(start), 1.5)
        self._parts.append(
            f'<rect x="{self.x(start)}" y="{self._top + down}" width="{width:.1f}" height="{height}" fill="{colour}">'
            f"<title>{escape(what)}</title></rect>"
        )

    def text(self, at: float, what: str, down: float) -> None:
        self._parts.append(f'<text x="{self.x(at) + 2}" y="{self._top + down + 13}">{escape(what)}</text>')

    def lane(self, name: str, rows: int = 1) -> None:
        """Name the lane that was drawn; the next one begins below it."""
        self._parts.append(f'<text x="0" y="{self._top + 13}">{escape(name)}</text>')
        self._top += rows * _ROW + 6

    def svg(self) -> str:
        parts = "".join(self._parts)
        return f'<svg width="{WIDTH}" height="{self._top + 10}" role="img" aria-label="timeline">{parts}</svg>'


def _picture(shown: Round) -> str:
    begin = _begin(shown)
    end = max(max(_times(shown), default=0.0), begin + 1.0)
    picture = _Picture(begin, end - begin)
    _faults(picture, shown.events, end)
    for broker_id in sorted({broker_id for roles in shown.roles for broker_id in roles.in_sync}):
        _replica(picture, broker_id, shown.roles, end)
    counts = Counter(int(at - begin) for at in shown.acknowledged)
    for second, count in counts.items():
        height = round(count / max(counts.values()) * 3 * _ROW, 1)
        at, what = begin + second, f"{count} acknowledged in second {second}"
        picture.bar(at, min(at + 1, end), "#88a0b8", what, down=3 * _ROW - height, height=height)
    picture.lane(f"acknowledged ({len(shown.acknowledged)})", 3)
    for at in shown.lost:
        picture.bar(at, at, "#b00020", f"lost, acknowledged at {at - begin:.3f} s")
    picture.lane(f"lost ({len(shown.lost)})")
    return picture.svg()


def _faults(picture: _Picture, events: Iterable[Event], end: float) -> None:
    """A bar for each, in the first row in which its name has room."""
    rows: list[float] = []
    for start, until, name in _spans(events, end):
        left, what = picture.x(start), f"{name}, {until - start:.1f} s"
        row = next((number for number, free in enumerate(rows) if free <= left), len(rows))
        rows[row : row + 1] = [max(picture.x(until), left + 7 * len(name))]
        picture.bar(start, until, "#e2b6b0", what, down=row * _ROW)
        picture.text(start, name, row * _ROW)
    picture.lane("faults", max(len(rows), 1))


def _replica(picture: _Picture, broker_id: int, roles: Sequence[Roles], end: float) -> None:
    colour = _COLOURS[broker_id % len(_COLOURS)]
    for known, until in zip(roles, [*(later.at for later in roles[1:]), end], strict=True):
        what = f"epoch {known.master_epoch}, in sync {sorted(known.in_sync)}"
        if known.master == broker_id:
            picture.bar(known.at, until, colour, f"master of {what}")
        elif broker_id in known.in_sync:
            picture.bar(known.at, until, colour, what, down=6, height=4)
    picture.lane(f"broker {broker_id}")


def _spans(events: Iterable[Event], end: float) -> Iterator[tuple[float, float, str]]:
    """(begin, end, name) of each fault."""
    fault: Event | None = None
    for event in events:
        if fault is not None and event.kind != "note":
            yield fault.at, event.at, fault.what
            fault = None
        if event.kind == "fault":
            fault = event
    if fault is not None:
        yield fault.at, end, fault.what
