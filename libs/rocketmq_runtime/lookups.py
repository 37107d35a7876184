"""Connections to hosts by name. Each name has one lookup at a time, which all who wait for it share.

A lookup cannot be cancelled: while a resolver does not answer, it occupies one of the few threads that all lookups of
the process share (four with uvloop), for up to a minute. Callers give up after seconds and try again, so without this
one dead name would keep every other name from being looked up.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from rocketmq_runtime import background

P = TypeVar("P", bound=asyncio.BaseProtocol)
T = TypeVar("T")


class Place(NamedTuple):
    """What `socket.socket` and `connect` take."""

    family: socket.AddressFamily
    address: tuple[Any, ...]


_Lookups = dict[str, "asyncio.Task[list[Place]]"]
_UNDER_WAY: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Lookups]" = WeakKeyDictionary()
"""By name."""


async def places(host: str, port: int) -> list[Place]:
    """Where `host` is, at least one place, the preferred one first.

    Raises:
        OSError: the name is unknown, or no resolver has answered.
    """
    under_way = _UNDER_WAY.setdefault(asyncio.get_running_loop(), {})
    task = under_way.get(host)
    if task is None:
        task = under_way[host] = background.awaited(_look_up(host), f"lookup of {host}")
        task.add_done_callback(partial(_ended, under_way, host))
    found = await asyncio.shield(task)
    return [Place(place.family, (place.address[0], port, *place.address[2:])) for place in found]


async def connect(
    loop: asyncio.AbstractEventLoop, protocol: Callable[[], P], host: str, port: int
) -> tuple[asyncio.Transport, P]:
    """`create_connection`: to the first place of `host` that takes it.

    Raises:
        OSError: the name is unknown, or no place takes the connection: the first one's reason.
    """
    if _is_address(host):
        return await loop.create_connection(protocol, host, port)
    return await first_of(host, port, lambda place: loop.create_connection(protocol, place.address[0], port))


async def first_of(host: str, port: int, attempt: Callable[[Place], Awaitable[T]]) -> T:
    """What `attempt` returns at the first place of `host` where it does not fail.

    Raises:
        OSError: the name is unknown, or it fails at each place: the first one's reason.
    """
    first: OSError | None = None
    for place in await places(host, port):
        try:
            return await attempt(place)
        except OSError as error:
            first = first or error
    raise first or OSError(f"no address of {host}")


async def _look_up(host: str) -> list[Place]:
    found = await asyncio.get_running_loop().getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    if not found:
        raise OSError(f"no address of {host}")
    return [Place(socket.AddressFamily(family), address) for family, _, _, _, address in found]


def _ended(under_way: _Lookups, host: str, task: "asyncio.Task[list[Place]]") -> None:
    """All who waited may have given up: the error is read here."""
    del under_way[host]
    if not task.cancelled():
        task.exception()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
