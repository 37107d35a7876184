"""Hands out loopback ports that no other user in this process or in another test run will take.

A Java broker needs listenPort - 2 (the VIP port), listenPort and listenPort + 1 (HA) and cannot report a port it chose
itself, so the ports must be chosen before it starts. Binding port 0 and closing it again is the usual trick, but the
JVM binds only seconds after the close. Here a file lock holds a block while the pool lives, and all blocks are below
the range from which the kernel picks ports for outgoing connections.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Self

_FIRST, _LAST, _WIDTH = 20_000, 32_000, 4
HOST = "127.0.0.1"


class NoFreePortsError(RuntimeError):
    """Every block of the range is locked or in use."""


class PortPool:
    """A set of port blocks that lives as long as the processes that use them."""

    def __init__(self) -> None:
        self._locks: list[IO[bytes]] = []
        self._folder = Path(tempfile.gettempdir()) / f"rocketmq-ha-ports-{os.getuid()}"

    def block(self) -> int:
        """The first of four consecutive free ports."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        bases = list(range(_FIRST, _LAST, _WIDTH))
        random.shuffle(bases)
        for base in bases:
            lock = (self._folder / str(base)).open("ab")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                continue
            if all(map(_is_free, range(base, base + _WIDTH))):
                self._locks.append(lock)
                return base
            lock.close()
        raise NoFreePortsError(f"no {_WIDTH} free ports in a row between {_FIRST} and {_LAST}")

    def broker(self) -> int:
        """A listenPort whose neighbours -2 and +1 are free too."""
        return self.block() + 2

    def single(self) -> int:
        """One port, for a name server or controller."""
        return self.block()

    def close(self) -> None:
        """Release the ports; call it after the processes have ended."""
        while self._locks:
            self._locks.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_free(port: int) -> bool:
    # On all interfaces: the Java HA service cannot be restricted to loopback.
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
        return True
