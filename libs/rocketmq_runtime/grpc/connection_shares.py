"""Closes connections of a gRPC port that is nearly full, of hosts with more than their share: gRPC itself knows only a
bound for all hosts. A tool that opens many does no harm while there is room. Used by `server`.

gRPC does not show its connections and closes none on request, but their sockets are descriptors of this process.
"""

import asyncio
import os
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from rocketmq_formats.addresses import format_address
from rocketmq_runtime import background
from rocketmq_runtime.log_limiter import LogLimiter
from rocketmq_runtime.remoting.hosts import host_of

log = structlog.get_logger(__name__)

PERIOD: Final = 1.0
"""Seconds between two looks, in which one host may keep others out."""
LOOKED_AT: Final = 100
"""Descriptors in one turn of the event loop: a millisecond."""
NEARLY_FULL: Final = 0.75
"""Part of a port's connections from which on hosts are held to their shares."""
LOG_SECONDS: Final = 60.0
_DESCRIPTORS: Final = "/dev/fd"
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
_LAST_DATA_RECV: Final = 52
"""Where `struct tcp_info` has the milliseconds since the last data came."""
_ESTABLISHED: Final = 1
"""The first byte of `struct tcp_info` until one side ends the connection."""


class Connection(NamedTuple):
    descriptor: int
    address: str
    """Of the peer."""
    silent: int
    """Milliseconds."""


class ConnectionShares:
    """One per port; used in the event loop only."""

    def __init__(self, *, max_connections: int, limit: int) -> None:
        """`max_connections`: of all hosts. `limit`: of one host."""
        self._nearly_full = NEARLY_FULL * max_connections
        self._limit = limit
        self._port = 0
        self._may_log = LogLimiter(time.monotonic, LOG_SECONDS)
        self._task: asyncio.Task[None] | None = None

    def start(self, port: int) -> None:
        """Look at the connections of `port` each PERIOD."""
        self._port = port
        self._task = background.start(self._run(), f"connections of gRPC port {port}")

    def stop(self) -> None:
        """Harmless if not started."""
        if self._task is not None:
            self._task.cancel()

    async def sweep(self) -> None:
        """If the port is nearly full, close what is above the share of each host. Raises `OSError`."""
        descriptors = _descriptors()
        if len(descriptors) < self._nearly_full:
            return  # whatever they are: to look at each costs ten times as much as the list
        found = []
        for number, descriptor in enumerate(descriptors, 1):
            if number % LOOKED_AT == 0:
                await asyncio.sleep(0)
            opened = _socket_of(descriptor, self._port)
            if opened is not None:
                with opened:
                    found.append(Connection(descriptor, _peer(opened), _silent(opened)))
        if len(found) < self._nearly_full:
            return
        above = above_share(found, self._limit)
        for connection in above:
            opened = _socket_of(connection.descriptor, self._port)
            if opened is not None:
                with opened:
                    if _peer(opened) == connection.address:  # not another one since
                        with suppress(OSError):  # it has ended by itself
                            opened.shutdown(socket.SHUT_RDWR)
        if above and self._may_log("share"):
            log.warning("gRPC connections closed: their hosts have too many", closed=len(above), limit=self._limit)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD)
            try:
                await self.sweep()
            except OSError as error:  # such as no free descriptor: the next look may find one
                if self._may_log("look"):
                    log.warning("cannot look at the connections of a gRPC port", port=self._port, reason=str(error))


def above_share(connections: Iterable[Connection], limit: int) -> list[Connection]:
    """What to close so that no host has more than `limit`: the longest silent of each."""
    by_host: dict[str, list[Connection]] = defaultdict(list)
    for connection in connections:
        by_host[host_of(connection.address)].append(connection)
    closed = []
    for its in by_host.values():
        its.sort(key=lambda one: one.silent, reverse=True)
        closed += its[: max(len(its) - limit, 0)]
    return closed


def _descriptors() -> list[int]:
    return [int(name) for name in os.listdir(_DESCRIPTORS)]  # noqa: PTH208 - paths would cost more than the call


def _socket_of(descriptor: int, port: int) -> socket.socket | None:
    """A duplicate of the descriptor, to be closed, if it is a connection to `port`: what it was a moment ago may have
    ended, and its number been given to something else. What has ended and waits for gRPC to notice is no connection."""
    try:
        duplicate = os.dup(descriptor)
    except OSError:
        return None
    try:
        opened = socket.socket(fileno=duplicate)
    except OSError:
        os.close(duplicate)
        return None
    if opened.family in _FAMILIES and opened.getsockname()[1] == port and _peer(opened) and not _has_ended(opened):
        return opened
    opened.close()
    return None


def _peer(opened: socket.socket) -> str:
    """Address, "" of one that has ended or listens."""
    try:
        return format_address(*opened.getpeername()[:2])
    except OSError:
        return ""


def _has_ended(opened: socket.socket) -> bool:
    """Whether one side ended it; False where the system does not say."""
    return _tcp_info(opened)[:1] not in (b"", bytes([_ESTABLISHED]))


def _silent(opened: socket.socket) -> int:
    """Milliseconds; 0 where the system does not say."""
    with suppress(struct.error):
        return int(struct.unpack_from("I", _tcp_info(opened), _LAST_DATA_RECV)[0])
    return 0


def _tcp_info(opened: socket.socket) -> bytes:
    """`struct tcp_info` of linux/tcp.h; nothing where the system has none."""
    with suppress(OSError, AttributeError):
        return opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return b""
