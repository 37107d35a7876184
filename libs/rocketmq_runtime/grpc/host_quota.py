"""Bounds the rpcs that each host has open at a gRPC port. Pure; used by `requests`."""

from collections import Counter

from rocketmq_runtime.remoting.hosts import host_of


class QuotaExceededError(Exception):
    """The host has as many rpcs open as one may have; the text has the limit."""


class HostQuota:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: Counter[str] = Counter()

    def acquire(self, peer: str) -> str:
        """One rpc of `peer` (`ipv4:10.0.0.1:80`, `ipv6:[::1]:80`, as gRPC writes it) begins; its host, for `release`.

        Raises:
            QuotaExceededError: the host has too many.
        """
        host = _host(peer)
        if self._open[host] >= self._limit:
            raise QuotaExceededError(f"{self._limit} rpcs of this host are open already")
        self._open[host] += 1
        return host

    def release(self, host: str) -> None:
        """The rpc is over."""
        self._open[host] -= 1
        if not self._open[host]:
            del self._open[host]

    def __len__(self) -> int:
        return self._open.total()


def _host(peer: str) -> str:
    return host_of(peer.partition(":")[2].replace("%5B", "[").replace("%5D", "]"))
