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

    def block(self, blocks: int = 1) -> int:
        """The first of four consecutive free ports, or of that number of blocks of four."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        width = blocks * _WIDTH
        bases = list(range(_FIRST, _LAST - width + 1, _WIDTH))
        random.shuffle(bases)
        for base in bases:
            locks = [self._lock(one) for one in range(base, base + width, _WIDTH)]
            held = [lock for lock in locks if lock is not None]
            if len(held) == blocks and all(map(_is_free, range(base, base + width))):
                self._locks += held
                return base
            for lock in held:
                lock.close()
        raise NoFreePortsError(f"no {width} free ports in a row between {_FIRST} and {_LAST}")

    def _lock(self, base: int) -> IO[bytes] | None:
        lock = (self._folder / str(base)).open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return None
        return lock

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
