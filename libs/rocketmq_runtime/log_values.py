"""Makes values from strangers safe to log: long ones are cut, and control characters are written as escapes.

One step of the log's processing (`logs.py`), so that callers need not do it.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Final

from structlog.typing import EventDict, WrappedLogger

MAX_TEXT: Final = 1000
"""Characters of one value."""
MAX_ITEMS: Final = 50
"""Entries of one list or table."""
MAX_DEPTH: Final = 4
MAX_TRACEBACK: Final = 20_000
"""Characters of a traceback as text."""
TRACEBACKS: Final = frozenset({"exception", "stack"})
"""Keys whose values have lines, and as JSON tables of frames."""

_CONTROLS: Final = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (*range(32), *range(127, 160), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
"""C0 and C1 controls, line separators, marks that change the text direction."""
_LINES: Final = {code: text for code, text in _CONTROLS.items() if chr(code) not in "\n\t"}


def bound_values(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A processor of structlog: every value short and plain. Tables of a traceback keep their shape."""
    for key, value in event.items():
        if key not in TRACEBACKS:
            event[key] = plain(value)
        elif isinstance(value, str):
            event[key] = cut(value, MAX_TRACEBACK).translate(_LINES)
        else:
            event[key] = plain(value, depth=-MAX_DEPTH)
    return event


def plain(value: object, *, depth: int = 0) -> object:
    """`value` as what a line may carry: numbers, short texts, short lists and tables of them."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return cut(str(value), MAX_TEXT).translate(_CONTROLS)
    if depth < MAX_DEPTH:
        if isinstance(value, Mapping):
            return {_key(key): plain(item, depth=depth + 1) for key, item in islice(value.items(), MAX_ITEMS)}
        if isinstance(value, list | tuple | set | frozenset):
            items = [plain(item, depth=depth + 1) for item in islice(value, MAX_ITEMS)]
            return items if len(value) <= MAX_ITEMS else [*items, f"... of {len(value)}"]
    return cut(repr(value), MAX_TEXT).translate(_CONTROLS)


def cut(text: str, length: int) -> str:
    """The first `length` characters, and how many there were."""
    return text if len(text) <= length else f"{text[:length]}... of {len(text)} characters"


def _key(key: object) -> str:
    return cut(str(key), MAX_TEXT).translate(_CONTROLS)
