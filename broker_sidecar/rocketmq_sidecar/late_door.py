"""Opens the gRPC door without being in the way of a start: when the replica does its part, or after DELAY whatever it
waits for; its import runs in a thread, so that the event loop goes on turning. Used by both kinds of sidecar.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from rocketmq_sidecar.replica_admin import ReplicaAdmin
from rocketmq_sidecar.served_log import ServedLog
from rocketmq_sidecar.settings import SidecarSettings

if TYPE_CHECKING:  # the import is what this module puts off
    from rocketmq_runtime.grpc_server import GrpcServer

log = structlog.get_logger(__name__)

DELAY = 1.0
"""Seconds until the door opens at the latest."""
LOOK = 0.05


class LateDoor:
    """One per process."""

    def __init__(
        self,
        settings: SidecarSettings,
        admin: ReplicaAdmin,
        ready: Callable[[], str | None],
        served: ServedLog | None = None,  # None for tests
    ) -> None:
        """`ready` is what /readyz says."""
        self._settings, self._admin, self._ready, self._served = settings, admin, ready, served
        self._server: GrpcServer | None = None

    def require_free(self) -> None:
        """Before the start: a replica that has become master must not end because a port is taken. Raises `OSError`."""
        host, port = self._settings.bind_address, self._settings.sidecar_grpc_port
        if port:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            try:
                socket.create_server((host, port), family=family).close()
            except OSError as error:
                raise OSError(error.errno, f"gRPC cannot listen on {host}:{port}: {error.strerror}") from error

    async def open(self) -> None:
        """Returns when it is open, or has to stay closed (port 0).

        Raises:
            OSError: the port is taken.
            SettingsError: the TLS files cannot be used.
        """
        port = self._settings.sidecar_grpc_port
        if not port:
            return
        self.require_free()
        loop = asyncio.get_running_loop()
        at_the_latest = loop.time() + DELAY
        while self._ready() is not None and loop.time() < at_the_latest:  # noqa: ASYNC110 - rare and short
            await asyncio.sleep(LOOK)
        make_door = await asyncio.to_thread(_load)
        self._server = make_door(self._settings, self._admin, self._ready, self._served)
        await self._server.start()
        log.info("gRPC open", port=port, tls=bool(self._settings.sidecar_grpc_tls_cert_file))

    async def close(self) -> None:
        """Let calls under way end, briefly."""
        if self._server is not None:
            await self._server.stop()


def _load() -> "Callable[[SidecarSettings, ReplicaAdmin, Callable[[], str | None], ServedLog | None], GrpcServer]":
    from rocketmq_sidecar.grpc_door import make_door  # noqa: PLC0415 - late on purpose

    return make_door
