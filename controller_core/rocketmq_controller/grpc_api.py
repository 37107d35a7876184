"""The gRPC door: one grpc.aio server with the admin service, health and reflection. Built and run by app.

Plaintext, or mutual TLS if the controllerGrpcTls* files are set. Everything a stranger can make grow is bounded here:
connections, rpcs, watches, message sizes, pings.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from rocketmq_api import controller_admin_pb2 as pb
from rocketmq_api.controller_admin_pb2_grpc import add_ControllerAdminServicer_to_server
from rocketmq_controller import grpc_tls
from rocketmq_controller.domain.liveness import HeartbeatTable
from rocketmq_controller.grpc_admin import ControllerAdmin
from rocketmq_controller.health_service import HealthService
from rocketmq_controller.service import ControllerService
from rocketmq_controller.watch import End, Watches

log = structlog.get_logger(__name__)

SERVICE = pb.DESCRIPTOR.services_by_name["ControllerAdmin"].full_name
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name

REFRESH_PERIOD = 0.25
"""Seconds between looks at readiness, leadership and liveness: what watchers are late by at the most."""
GRACE = 0.5
"""Seconds that rpcs under way get when the server stops; watches end at once."""


@dataclass(frozen=True, kw_only=True)
class GrpcLimits:
    """What the server lets strangers use."""

    max_connections: int = 2000
    max_rpcs: int = 4000
    """At once, watches included."""
    max_watches: int = 1000
    """Of groups, and as many of health."""
    max_message_bytes: int = 4 * 1024 * 1024
    """Either way; the default of clients as well."""


class GrpcApi:
    """One per process; used in the event loop only."""

    def __init__(
        self,
        service: ControllerService,
        heartbeats: HeartbeatTable,
        ready: Callable[[], str | None],
        limits: GrpcLimits = GrpcLimits(),
    ) -> None:
        """Nothing is opened yet; `ready` is `Health.ready`.

        Raises:
            SettingsError: the TLS files cannot be used; the text names the key.
        """
        settings = service.config.settings
        self._credentials = grpc_tls.server_credentials(settings)
        host = settings.controller_listen_host or "::"
        self._address = f"[{host}]:{settings.grpc_port}" if ":" in host else f"{host}:{settings.grpc_port}"
        self._ready = ready
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self.watches = Watches(
            machine=service.machine,
            heartbeats=heartbeats,
            is_leader=lambda: service.replica.is_leader,
            now=self._loop.time,
            limit=limits.max_watches,
        )
        self._admin = ControllerAdmin(service, heartbeats, self.watches, max_message_bytes=limits.max_message_bytes)
        self._health = HealthService((SERVICE,), max_watches=limits.max_watches)
        self._server: aio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Open the port.

        Raises:
            OSError: it cannot be bound.
        """
        server = aio.server(
            options=(
                ("grpc.max_receive_message_length", self._limits.max_message_bytes),
                ("grpc.max_send_message_length", self._limits.max_message_bytes),
                ("grpc.max_allowed_incoming_connections", self._limits.max_connections),
                ("grpc.so_reuseport", 0),  # a port in use shall be an error
                # A client may ping as often as kubectl and Go's default allow; we ping to find those that are gone.
                ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
                ("grpc.http2.max_ping_strikes", 2),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.keepalive_time_ms", 30_000),
                ("grpc.keepalive_timeout_ms", 10_000),
                ("grpc.max_connection_idle_ms", 600_000),
            ),
            maximum_concurrent_rpcs=self._limits.max_rpcs,
        )
        add_ControllerAdminServicer_to_server(self._admin, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection((SERVICE, HEALTH, reflection.SERVICE_NAME), server)
        try:
            if self._credentials is None:
                server.add_insecure_port(self._address)
            else:
                server.add_secure_port(self._address, self._credentials)
        except RuntimeError as error:
            raise OSError(f"gRPC cannot listen on {self._address}: {error}") from error
        self._server = server
        await server.start()
        self._tick()

    async def stop(self) -> None:
        """Tell watchers that we go, let rpcs under way end within GRACE, close the port. Harmless if not started."""
        if self._timer is not None:
            self._timer.cancel()
        self._health.stop()
        self.watches.end_all(End.STOPPING)
        if self._server is not None:
            await self._server.stop(GRACE)
            self._server = None

    def refresh(self) -> None:
        """Bring watchers and health up to date; runs each REFRESH_PERIOD."""
        self._health.serve(self._ready() is None)
        self.watches.sweep()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(REFRESH_PERIOD, self._tick)
        self.refresh()
