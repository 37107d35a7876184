"""What a sidecar says of a broker that acts for a missing master (RIP-32). Both engines."""

from typing import Final

ACTING: Final = "acting master: serves consumers and refuses sends until there is a master"


def with_acting(reason: str | None, *, acting: bool) -> str | None:
    """Why a replica is not ready; one that acts still serves consumers."""
    return f"{reason}; {ACTING}" if reason is not None and acting else reason
