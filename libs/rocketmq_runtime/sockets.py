"""Ports of this host in both IP families, and its own address. Used by every server of every process.

The addresses for "all" (nothing, 0.0.0.0 and ::) stand for both families where the kernel has both, as Java's servers
take them. Each family gets a socket of its own, so that a peer's IPv4 address is never shown as ::ffff:10.0.0.1: born
hosts, quotas and comparisons of addresses depend on it.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable

from rocketmq_formats.addresses import format_address

EVERYWHERE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared
TRIES = 16
"""To find a port that is free in both families, where the system chooses."""
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses reserved for documentation (RFC 5737, RFC 3849)."""


def bind_hosts(host: str) -> tuple[str, ...]:
    """What to bind to for the configured `host`."""
    if host not in EVERYWHERE:
        return (host,)
    return ("0.0.0.0", "::") if has_ipv6() else ("0.0.0.0",)  # noqa: S104 - that is what was asked for


def has_ipv6() -> bool:
    """Whether this host's kernel knows IPv6."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as one:
            one.bind(("::", 0))
    except OSError:
        return False
    return True


def listen(host: str, port: int, *, backlog: int) -> list[socket.socket]:
    """Sockets that listen at every address of `host`, one port for all; 0: a free one.

    Raises:
        OSError: an address cannot be bound, or the name is unknown; without the address, see `listen_error`.
    """
    tries = 1 if port else TRIES
    while True:
        try:
            return _listen(host, port, backlog)
        except OSError as error:
            tries -= 1
            if not tries or error.errno != errno.EADDRINUSE:
                raise


def _listen(host: str, port: int, backlog: int) -> list[socket.socket]:
    found = [
        (family, address)
        for name in bind_hosts(host)
        for family, _, _, _, address in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    ]
    sockets: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys(found):
            place = (address[0], port, *address[2:])
            sockets.append(socket.create_server(place, family=family, backlog=backlog))
            port = int(sockets[0].getsockname()[1])
    except OSError:
        for one in sockets:
            one.close()
        raise
    return sockets


async def open_server(
    loop: asyncio.AbstractEventLoop,
    protocol: Callable[[], asyncio.BaseProtocol],
    host: str,
    port: int,
    *,
    what: str,
    backlog: int = 100,
) -> asyncio.Server:
    """A server at every address of `host`, one port for all. The loop opens the ports: a simulated one opens none.

    Raises:
        OSError: as `listen_error` makes it of `what`.
    """
    hosts = bind_hosts(host)
    try:
        if not port and len(hosts) > 1:
            port = _free_port(host)
        where = hosts if len(hosts) > 1 else hosts[0]
        return await loop.create_server(protocol, where, port, backlog=backlog, reuse_address=True)
    except OSError as error:
        raise listen_error(what, host, port, error) from error


def _free_port(host: str) -> int:
    sockets = listen(host, 0, backlog=1)
    port = int(sockets[0].getsockname()[1])
    for one in sockets:
        one.close()
    return port


def listen_error(what: str, host: str, port: int, error: OSError) -> OSError:
    """`error` with what could not listen and where; `what` names the key."""
    number = error.errno
    reason = os.strerror(number) if number is not None and number > 0 else error.strerror or str(error)
    return OSError(number, f"{what} cannot listen on {format_address(host or '0.0.0.0', port)}: {reason}")  # noqa: S104


def own_address() -> str:
    """This host's address towards others: of IPv4, else of IPv6; loopback without a network. Sends nothing."""
    for family, elsewhere in _ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, 9))  # UDP: this only looks up the route
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"
