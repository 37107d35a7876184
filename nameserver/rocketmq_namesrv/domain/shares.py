"""How much of a table each host has put there, so that one host cannot take all of its room. Pure; used by `tables`.

A host gets at most as much of a table as it leaves to the others: half of it if it is alone, a third beside another one
that takes what it can, and so on. Therefore a newcomer always finds some.
"""

from collections import Counter
from collections.abc import Mapping

from rocketmq_namesrv.domain.model import TableFullError


class Shares:
    """The entries of one table by host; the table keeps who put which."""

    def __init__(self, limit: int, what: str) -> None:
        """`limit`: entries of all hosts; `what` they are, for errors."""
        self.what = what
        self._limit = limit
        self._of_host: Counter[str] = Counter()
        self.total = 0

    def check(self, host: str, more: int) -> None:
        """Whether `host` may put `more` entries.

        Raises:
            TableFullError: there is no room, or `host` has its share.
        """
        check_share(self._limit, self.what, total=self.total, of_host=self._of_host[host], more=more)

    @property
    def by_host(self) -> Mapping[str, int]:
        return self._of_host

    def put(self, host: str) -> None:
        self._of_host[host] += 1
        self.total += 1

    def remove(self, host: str) -> None:
        """One that `host` has put."""
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]
        self.total -= 1


def check_share(limit: int, what: str, *, total: int, of_host: int, more: int) -> None:
    """Whether a host that has `of_host` of the `total` entries may put `more`.

    Raises:
        TableFullError: no.
    """
    left = limit - total - more
    if left < 0:
        raise TableFullError(f"more than {limit} {what} would be registered")
    if more and of_host + more > max(left, 1):
        raise TableFullError(
            f"{of_host + more} {what} of one host would leave {left} of {limit} to others: no host gets more than that"
        )
