"""Acting masters (RIP-32) in our resources: what name servers do about them unless spec.config says otherwise."""

from collections.abc import Mapping
from typing import Final

SUPPORT: Final = "supportActingMaster"
NAME_SERVER_DEFAULTS: Final[Mapping[str, str]] = {SUPPORT: "true", "notifyMinBrokerIdChanged": "true"}
"""Java has both off. On they change nothing but routes of groups that ask for it (enableSlaveActingMaster), and the
message that a brokerId has become the least, which other brokers ignore."""


def shows_acting_masters(config: Mapping[str, str]) -> bool:
    """Whether routes of name servers with this spec.config show an acting master."""
    return is_true({**NAME_SERVER_DEFAULTS, **config}[SUPPORT])


def is_true(value: str | None) -> bool:
    """As Java reads it."""
    return value is not None and value.lower() == "true"
