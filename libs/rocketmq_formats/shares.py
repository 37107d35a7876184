"""How much of a bounded table each host has put there, so that one host cannot take all of its room. Pure; used by the
tables of name servers and brokers that strangers can fill, and for configuration updates that wait.

A host gets at most as much of a table as it leaves to the others: half of it if it is alone, a third beside another one
that takes what it can, and so on. Therefore a newcomer always finds some.
"""

from collections import Counter
from collections.abc import Mapping


class Shares:
    """The entries of one table by host; the table keeps who put which."""

    def __init__(self, limit: int, what: str) -> None:
        """`limit`: entries of all hosts; `what` they are, for `why_not`."""
        self.what = what
        self._limit = limit
        self._of_host: Counter[str] = Counter()
        self.total = 0

    @property
    def by_host(self) -> Mapping[str, int]:
        return self._of_host

    def why_not(self, host: str, more: int = 1) -> str | None:
        """None: `host` may put `more` entries; else there is no room, or it has its share."""
        return why_not(self._limit, self.what, total=self.total, of_host=self._of_host[host], more=more)

    def put(self, host: str) -> None:
        self._of_host[host] += 1
        self.total += 1

    def remove(self, host: str) -> None:
        """One that `host` has put."""
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]
        self.total -= 1


def why_not(limit: int, what: str, *, total: int, of_host: int, more: int = 1) -> str | None:
    """None: a host that has `of_host` of the `total` entries may put `more`."""
    left = limit - total - more
    if left < 0:
        return f"there would be more than {limit} {what}"
    if more and of_host + more > max(left, 1):
        return f"{of_host + more} {what} of one host would leave {left} of {limit} to others: it gets at most that"
    return None
