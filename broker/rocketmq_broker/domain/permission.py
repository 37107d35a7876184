"""brokerPermission: which of reads and writes this broker offers, as configured or as a tool has set it since (25).

Registrations, sends and pulls ask. It does no I/O: `core.py` keeps it in a file.
"""

from collections.abc import Callable, Mapping
from typing import Final

from rocketmq_formats.topics import PERM_READ, PERM_WRITE

KEY: Final = "brokerPermission"
_CONFIGURED: Final = "configured"
"""In the file: what the configuration said when a tool set another value. A configuration that says something else
now was changed after that, so it counts."""
_HIGHEST: Final = 7


class BrokerPermission:
    """Changed only through its methods."""

    def __init__(self, configured: int) -> None:
        self._configured = self.value = configured
        self._listeners: list[Callable[[], None]] = []

    @property
    def readable(self) -> bool:
        return bool(self.value & PERM_READ)

    @property
    def writable(self) -> bool:
        return bool(self.value & PERM_WRITE)

    @property
    def limits(self) -> bool:
        """Whether topics have fewer permissions at this broker than they say."""
        return not (self.readable and self.writable)

    def on_change(self, listener: Callable[[], None]) -> None:
        """`listener` is called after every change."""
        self._listeners.append(listener)

    def change(self, text: str) -> bool:
        """A tool's value; False if it is the present one.

        Raises:
            ValueError: no permission.
        """
        value = _permission(text)
        if value == self.value:
            return False
        self.value = value
        for listener in self._listeners:
            listener()
        return True

    # the file

    def kept(self) -> Mapping[str, str]:
        """What the file has."""
        return {KEY: str(self.value), _CONFIGURED: str(self._configured)}

    def take(self, kept: Mapping[str, str]) -> None:
        """What the file had at the start.

        Raises:
            ValueError: it is not `kept`'s.
        """
        if _permission(kept.get(_CONFIGURED, "")) == self._configured:
            self.value = _permission(kept.get(KEY, ""))


def _permission(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:10]) <= _HIGHEST and len(text) <= 10):
        raise ValueError(f"{KEY}={text[:20]}: a number from 0 to {_HIGHEST}")
    return int(text)
