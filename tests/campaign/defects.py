"""Errors in the logs of our servers that no bad input, disk or peer explains: defects, whatever their effect."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

DEFECTS = frozenset(
    {
        *(
            "ArithmeticError",
            "AssertionError",
            "AttributeError",
            "BufferError",
            "IndexError",
            "KeyError",
            "LookupError",
        ),
        *("NameError", "NotImplementedError", "RecursionError", "RuntimeError", "StopAsyncIteration", "StopIteration"),
        *("struct.error", "error", "TypeError", "UnboundLocalError", "UnicodeDecodeError", "UnicodeEncodeError"),
        *("ValueError", "ZeroDivisionError", "InvalidStateError"),
    }
)
"""Exceptions that a server should never log."""
_LAST_LINE = re.compile(r"([A-Za-z_.]+(?:Error|Exception|Iteration|error))(?::|$)")
"""Of a traceback."""
_THREAD_LOST = re.compile(r'Exception in thread "[^"]*" java\.lang\.OutOfMemoryError')
"""An official broker keeps running without a thread that it needs: the campaign gives it too little memory."""


def find_defects(folder: Path) -> list[str]:
    """A sentence for each kind of defect in `*/*/out.log` below the folder."""
    found: dict[str, None] = {}
    for path in sorted(folder.glob("*/*/out.log")):
        with path.open(errors="replace") as lines:
            for defect in defects(lines):
                found.setdefault(f"defect in {path.parent.parent.name} {path.parent.name}: {defect}")
    return list(found)


def defects(lines: Iterable[str]) -> Iterator[str]:
    """In one log, JSON lines and bare tracebacks mixed."""
    inside = False
    for line in lines:
        if line.startswith("Traceback (most recent call last)"):
            inside = True
        elif inside and not line.startswith((" ", "\n")):
            inside = False
            match = _LAST_LINE.match(line)
            if match is not None and match[1].removeprefix("asyncio.exceptions.") in DEFECTS:
                yield line.strip()
        elif _THREAD_LOST.match(line):
            yield line.strip()
        elif line.startswith("{") and '"exception"' in line:
            yield from _logged(line)


def _logged(line: str) -> Iterator[str]:
    try:
        entry: dict[str, Any] = json.loads(line)
    except ValueError:
        return  # torn by a kill
    chain = entry.get("exception")
    if not isinstance(chain, list) or not chain:
        return
    last = chain[0]
    if last.get("exc_type") in DEFECTS:
        frames = last.get("frames") or [{}]
        where = f"{Path(frames[-1].get('filename', '?')).name}:{frames[-1].get('lineno', '?')}"
        yield f"{entry.get('event')}: {last['exc_type']}: {last.get('exc_value')} ({where})"
