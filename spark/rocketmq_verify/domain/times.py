"""Times as text: for people, and for Kubernetes."""

from datetime import UTC, datetime


def when(ms: int) -> str:
    """A time of a record or a run, in milliseconds since 1970; a damaged record may have any."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms since 1970"


def rfc3339(moment: float) -> str:
    """As Kubernetes writes times, in whole seconds; `moment`: in seconds since 1970."""
    return datetime.fromtimestamp(int(moment), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
