"""`rocketmq-broker --pre-stop SOCKET`: returns when the sidecar has ended. The preStop hook of the broker's container.

Kubernetes ends both containers of a pod at once. A sidecar hands mastership over before it ends, and needs its broker
for that; so the broker's SIGTERM has to wait for this command.
"""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

SECONDS: Final = 10.0
"""How long at most: the rest of the pod's grace period is the broker's own."""
PAUSE: Final = 0.1
"""Before the next attempt, if the sidecar closes what it accepts."""


def wait_for_sidecar(
    path: Path,
    *,
    seconds: float = SECONDS,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Whether the sidecar has stopped listening at the socket `path`; False: it still listens after `seconds`.

    A silent connection stays open until the sidecar ends and closes it.
    """
    deadline = clock() + seconds
    while (left := deadline - clock()) > 0:
        if not _held_to_the_end(path, left):
            return True
        pause(min(PAUSE, left))
    return False


def _held_to_the_end(path: Path, seconds: float) -> bool:
    """Connect and wait until the other side closes, at most `seconds`. False: no one listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        try:
            _connect(connection, path)
            while connection.recv(4096):
                pass
        except (TimeoutError, ConnectionResetError):
            pass
        except OSError:
            return False
    return True


def _connect(connection: socket.socket, path: Path) -> None:
    """Through its folder: a socket address holds about 100 bytes, and a path may be longer."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        connection.connect(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
