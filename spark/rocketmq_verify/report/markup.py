"""HTML with safe escaping: elements are made of texts, which are escaped, and of elements, which are not.

Used by the report's modules. Topics, keys and names may come from damaged logs, so control characters, direction marks
and lone surrogates appear as escapes, and a text is cut at a length.
"""

import html
import unicodedata
from collections.abc import Iterable
from typing import Final, TypeAlias

LONGEST_TEXT: Final = 2000
"""Characters; what is longer ends in an ellipsis."""
_EMPTY: Final = frozenset({"meta", "br", "hr", "col"})
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


class Html(str):
    """Finished markup; never make one directly from foreign text."""

    __slots__ = ()


Child: TypeAlias = str | int | None
"""`Html` is used as it is, any other text is escaped, None is left out."""


def visible(text: str, longest: int = LONGEST_TEXT) -> str:
    """Plain text in which every character is visible, even line feeds and tabs."""
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    if cut.isascii() and cut.isprintable():
        return cut
    return "".join(_escaped(char) if unicodedata.category(char) in _HIDDEN else char for char in cut)


def safe(child: Child) -> Html:
    """One child as markup."""
    if child is None:
        return Html()
    if isinstance(child, Html):
        return child
    return Html(html.escape(visible(str(child)), quote=True))


def join(children: Iterable[Child], between: str = "") -> Html:
    """Several, one after the other; `between` is markup."""
    return Html(between.join(safe(child) for child in children))


def el(tag: str, *children: Child, **attributes: str | int | bool | None) -> Html:
    """An element. Attributes: `cls` is class, `_` becomes `-`, True has no value, False and None leave it out."""
    written = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _EMPTY:
        return Html(f"<{tag}{written}>")
    return Html(f"<{tag}{written}>{join(children)}</{tag}>")


def table(
    head: Iterable[Child], rows: Iterable[Iterable[Child]], *, caption: str, cls: str = "", empty: str = ""
) -> Html:
    """With a row of column headings, and the first cell of each row as its heading; `empty` is shown instead of no
    rows."""
    body = [el("tr", *(_cell(at, cell) for at, cell in enumerate(row))) for row in rows]
    if not body and empty:
        return el("p", empty, cls="quiet")
    heads = join(el("th", title, scope="col") for title in head)
    inner = el("table", el("caption", caption), el("thead", el("tr", heads)), el("tbody", *body), cls=cls or None)
    # a table wider than the page scrolls, by keyboard too
    return el("div", inner, cls="scroll", tabindex=0, role="region", aria_label=caption)


def _cell(at: int, child: Child) -> Html:
    return el("td", child) if at else el("th", child, scope="row")


def _attribute(name: str, value: str | int | bool | None) -> str:  # noqa: FBT001 - an attribute's own value
    if value is None or value is False:
        return ""
    plain = "class" if name == "cls" else name.rstrip("_").replace("_", "-")
    return f" {plain}" if value is True else f' {plain}="{html.escape(visible(str(value)), quote=True)}"'


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def counted(count: int, one: str, many: str = "") -> str:
    """`1 finding`, `2 findings`; `many` where it is not `one` with an s."""
    return f"{count} {one if count == 1 else many or one + 's'}"
