"""Bytes of several copies of a record side by side, with marked differences. Called by `findings`."""

from collections.abc import Sequence
from typing import Final

from rocketmq_verify.domain.reports import CopyReport
from rocketmq_verify.report.markup import Html, el, join

BYTES_IN_ROW: Final = 8
MOST_COPIES: Final = 8
"""Side by side; of more, those with the first names."""
MOST_BYTES: Final = 256
"""Of a copy."""
_STANDING: Final = {True: "right", False: "wrong", None: "unknown"}
_CLASS: Final = {True: "good", False: "bad", None: "unsure"}


def hex_view(copies: Sequence[CopyReport]) -> Html | None:
    """A table with a line for each 8 bytes and two columns for each copy; None if there are no bytes to show."""
    contents = {copy.replica: _bytes(copy) for copy in copies[:MOST_COPIES]}
    shown = [copy for copy in copies[:MOST_COPIES] if contents[copy.replica]]
    if not shown:
        return None
    start = min(copy.hex_offset for copy in shown)
    end = min(max(max(contents[copy.replica]) + 1 for copy in shown), start + MOST_BYTES)
    differing = {at for at in range(start, end) if len({contents[copy.replica].get(at) for copy in shown}) > 1}
    heads = [el("th", "offset", scope="col"), *(_head(copy) for copy in shown)]
    lines = [
        el(
            "tr",
            el("th", str(line), scope="row"),
            *(
                _line(
                    right=copy.right,
                    content=contents[copy.replica],
                    places=range(line, min(line + BYTES_IN_ROW, end)),
                    differing=differing,
                )
                for copy in shown
            ),
        )
        for line in range(start, end, BYTES_IN_ROW)
    ]
    caption = el("caption", "Bytes around the first difference, in hex and as ASCII; differences are underlined.")
    table = el("table", caption, el("thead", el("tr", *heads)), el("tbody", *lines), cls="hex")
    return el("div", table, cls="scroll", tabindex=0, role="region", aria_label="bytes of the copies")


def _bytes(copy: CopyReport) -> dict[int, int]:
    """By physical offset."""
    try:
        data = bytes.fromhex(copy.hex)[:MOST_BYTES]
    except ValueError:
        return {}
    return {copy.hex_offset + at: value for at, value in enumerate(data)}


def _head(copy: CopyReport) -> Html:
    badge = el("span", _STANDING[copy.right], cls=f"badge {_CLASS[copy.right]}")
    reason = el("span", copy.reason, cls="reason")
    return el("th", el("span", copy.replica, cls="name"), " ", badge, reason, scope="colgroup", colspan=2)


def _line(*, right: bool | None, content: dict[int, int], places: range, differing: set[int]) -> Html:
    codes, chars = [], []
    for at in places:
        value = content.get(at)
        code = "··" if value is None else f"{value:02x}"
        char = " " if value is None else chr(value) if 0x20 <= value < 0x7F else "."
        codes.append(el("mark", code) if at in differing else code)
        chars.append(el("mark", char) if at in differing else char)
    look = _CLASS[right]
    return join([el("td", join(codes, " "), cls=f"codes {look}"), el("td", join(chars), cls=f"chars {look}")])
