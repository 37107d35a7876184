"""Connections by host, and which one gives way where there is no room for another. Pure; used by `server.py`."""

import ipaddress
from collections.abc import Callable, Hashable
from functools import lru_cache
from itertools import islice
from typing import Final, Generic, TypeVar

C = TypeVar("C", bound=Hashable)

LOOKED_AT: Final = 64
"""The oldest connections of a host, one of which gives way: to look at all would cost a newcomer milliseconds."""


def host_of(address: str) -> str:
    """The part of `host:port` that stands for one machine: of an IPv6 address the network of 64 bits, for a machine has
    as many addresses in it as it likes."""
    host = address.rpartition(":")[0]
    if not host.startswith("["):
        return host
    try:
        number = ipaddress.IPv6Address(host[1:-1])
    except ValueError:
        return host
    return str(number.ipv4_mapped or ipaddress.IPv6Address(int(number) >> 64 << 64))


@lru_cache(maxsize=65_536)
def ip_of(address: str) -> str:
    """The IP address in `ip:port` in one form of text, "" if it is something else: a name, or nothing."""
    host = address.rpartition(":")[0]
    try:
        number = ipaddress.ip_address(host[1:-1] if host[:1] + host[-1:] == "[]" else host)
    except ValueError:
        return ""
    return str(getattr(number, "ipv4_mapped", None) or number)


class Hosts(Generic[C]):
    """Open connections by the host they come from, each host's oldest first."""

    def __init__(self, last_activity: Callable[[C], float]) -> None:
        self._last_activity = last_activity
        self._by_host: dict[str, dict[C, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, host: str, connection: C) -> None:
        self._by_host.setdefault(host, {})[connection] = None
        self._count += 1

    def remove(self, host: str, connection: C) -> bool:
        """False: it was not there."""
        connections = self._by_host.get(host)
        if connections is None or connection not in connections:
            return False
        del connections[connection]
        if not connections:
            del self._by_host[host]
        self._count -= 1
        return True

    def gives_way(self, host: str) -> C | None:
        """The connection that may be closed for one more of `host`: of the host with the most connections, among its
        oldest the one that has been silent for longest. None: `host` has as many as anybody."""
        largest = max(self._by_host.values(), key=len, default={})
        if len(largest) <= len(self._by_host.get(host, ())) + 1:
            return None
        return min(islice(largest, LOOKED_AT), key=self._last_activity)
