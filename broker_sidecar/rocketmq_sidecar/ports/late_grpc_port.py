"""Opens the gRPC port without delaying the start of a replica: when the replica serves, or after DELAY at the latest.
The import runs in a thread, so that the event loop is not blocked. Used by both kinds of sidecar.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from rocketmq_runtime.sockets import listen, listen_error
from rocketmq_sidecar.ports.replica_admin import ReplicaAdmin
from rocketmq_sidecar.ports.served_log import ServedLog
from rocketmq_sidecar.settings import SidecarSettings

if TYPE_CHECKING:  # the import is what this module puts off
    from rocketmq_runtime.grpc.server import GrpcServer

log = structlog.get_logger(__name__)

DELAY = 1.0
"""Longest time in seconds until the port opens."""
POLL_INTERVAL = 0.05


class LateGrpcPort:
    def __init__(
        self,
        settings: SidecarSettings,
        admin: ReplicaAdmin,
        ready: Callable[[], str | None],
        served: ServedLog | None = None,  # None for tests
    ) -> None:
        """`ready` is the reason in /readyz."""
        self._settings, self._admin, self._ready, self._served = settings, admin, ready, served
        self._server: GrpcServer | None = None

    def require_free(self) -> None:
        """Check before the start: a replica that has become master must not end because a port is taken. Raises
        `OSError`."""
        host, port = self._settings.bind_address, self._settings.sidecar_grpc_port
        if port:
            try:
                for one in listen(host, port, backlog=1):
                    one.close()
            except OSError as error:
                raise listen_error("sidecarGrpcPort: gRPC", host, port, error) from error

    async def open(self) -> None:
        """Returns when the port is open, or at once if it is 0.

        Raises:
            OSError: the port is taken.
            SettingsError: the TLS files cannot be used.
        """
        port = self._settings.sidecar_grpc_port
        if not port:
            return
        self.require_free()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DELAY
        while self._ready() is not None and loop.time() < deadline:  # noqa: ASYNC110 - rare and short
            await asyncio.sleep(POLL_INTERVAL)
        make_grpc_server = await asyncio.to_thread(_load)
        self._server = make_grpc_server(self._settings, self._admin, self._ready, self._served)
        await self._server.start()
        log.info("gRPC open", port=port, tls=bool(self._settings.sidecar_grpc_tls_cert_file))

    async def close(self) -> None:
        """Let calls under way end, briefly."""
        if self._server is not None:
            await self._server.stop()


def _load() -> "Callable[[SidecarSettings, ReplicaAdmin, Callable[[], str | None], ServedLog | None], GrpcServer]":
    from rocketmq_sidecar.ports.grpc_port import make_grpc_server  # noqa: PLC0415 - late on purpose

    return make_grpc_server
