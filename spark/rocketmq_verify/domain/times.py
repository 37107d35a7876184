"""Times for people."""

from datetime import UTC, datetime


def when(ms: int) -> str:
    """A time of a record or a run, in milliseconds since 1970; a damaged record may have any."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms since 1970"
