"""Formats results: tables like kubectl's, JSON or YAML. Used by every verb.

Tables are for people and may change; JSON and YAML keep their keys (docs/kubectl-rocketmq.md).
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum

from rocketmq_runtime.terminal import one_line, to_json

Document = Mapping[str, object]

GAP = "   "
NOTHING = "-"
"""An empty cell."""


class Form(StrEnum):
    """What -o may be."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


def render(form: Form, table: str, document: Document) -> str:
    """`table` or `document`, as -o asks for; ends with a newline unless it is empty."""
    if form is Form.JSON:
        return to_json(document)
    if form is Form.YAML:
        import yaml  # noqa: PLC0415 - only who asks for YAML waits for it

        return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    return table


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as their widest cell, the last one ragged; None is shown as `-`."""
    lines = [list(headers), *([cell(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    return "".join(GAP.join(map(str.ljust, line, widths)).rstrip() + "\n" for line in lines)


def facts(pairs: Sequence[tuple[str, object]]) -> str:
    """`Name:   value` lines, values under each other; pairs with None are left out."""
    shown = [(f"{name}:", cell(value)) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    return "".join(f"{name.ljust(width)}  {value}\n" for name, value in shown)


def cell(value: object) -> str:
    """One value in a table: never more than a line, whatever the network sent."""
    match value:
        case None | "" | () | []:
            return NOTHING
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ",".join(cell(part) for part in value)
    return one_line(value)


def duration(seconds: float) -> str:
    """A span as kubectl shows ages: 42s, 3m12s, 5h, 7d."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 10:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    return f"{hours}h" if hours < 48 else f"{hours // 24}d"


def age(timestamp: str | None, now: datetime) -> str | None:
    """How long ago `timestamp` (RFC 3339) was; None for anything else."""
    seconds = seconds_since(timestamp, now)
    return None if seconds is None else duration(seconds)


def seconds_since(timestamp: str | None, now: datetime) -> float | None:
    """Seconds from `timestamp` (RFC 3339) to `now`; None for anything else."""
    try:
        then = datetime.fromisoformat(timestamp or "")
    except ValueError:
        return None
    return (now - (then if then.tzinfo is not None else then.replace(tzinfo=UTC))).total_seconds()


def size(count: int | None) -> str | None:
    """Bytes with a binary unit: 0 B, 1.5 KiB, 23 GiB; None stays None."""
    if count is None:
        return None
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while abs(value) >= 1024 and len(units) > 1:
        value /= 1024
        del units[0]
    return f"{value:.0f} {units[0]}" if units[0] == "B" or abs(value) >= 100 else f"{value:.1f} {units[0]}"
