"""A gRPC port: one grpc.aio server with a process's own services, health and reflection. Used by the ports of
controller and sidecar.

Plaintext or mutual TLS. Everything a stranger can make grow is bounded here: connections, rpcs, watches of health,
sizes of messages and headers, pings. Importing this takes a while and megabytes: where starts matter, do it late.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import grpc
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from rocketmq_formats.addresses import format_address
from rocketmq_runtime.grpc.connection_shares import ConnectionShares
from rocketmq_runtime.grpc.health import HealthService
from rocketmq_runtime.grpc.requests import GuardRequests

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name

REFRESH_PERIOD = 0.25
"""Seconds between checks of readiness: watchers of health are at most this late."""
GRACE = 0.5
"""Seconds that rpcs under way get when the server stops."""


@dataclass(frozen=True, kw_only=True)
class GrpcLimits:
    """Bounds of what strangers can use of a server."""

    max_connections: int = 500
    """gRPC takes some 23 KiB for each, and keeps them for the next ones."""
    max_connections_of_host: int = 100
    """Above it the longest silent are closed within a second if the port is nearly full, so that no host takes all.
    Port-forwards are one host."""
    max_rpcs: int = 4000
    """At once, watches included."""
    max_rpcs_of_host: int = 500
    """At once, of one host; likewise."""
    max_metadata_bytes: int = 8 * 1024
    """Headers of one rpc."""
    max_watches: int = 1000
    """Of health; services bound theirs by the same number."""
    max_message_bytes: int = 4 * 1024 * 1024
    """Either way; the default of clients as well."""
    handshake_seconds: float = 5.0
    """From the start of a connection until HTTP/2 is set up (after TLS, if it is on)."""
    idle_seconds: float = 60.0
    """Without an rpc under way; then the connection is closed in order, and clients open another when they need it."""


class GrpcServer:
    """One port; used in the event loop only."""

    def __init__(
        self,
        *,
        host: str,
        port: int,
        services: Mapping[str, Callable[[aio.Server], None]],
        ready: Callable[[], str | None],
        credentials: grpc.ServerCredentials | None,
        limits: GrpcLimits,
        on_refresh: Callable[[], None] = lambda: None,
    ) -> None:
        """Nothing is opened yet.

        Args:
            services: what adds a service to the server, by its full name.
            ready: what /readyz says; None: serving.
            on_refresh: called each REFRESH_PERIOD, while it serves.
        """
        self._address, self._port = format_address(host, port), port
        self._services = services
        self._ready, self._on_refresh = ready, on_refresh
        self._credentials = credentials
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._health = HealthService(tuple(services), max_watches=limits.max_watches)
        self.shares = ConnectionShares(max_connections=limits.max_connections, limit=limits.max_connections_of_host)
        self._server: aio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Open the port.

        Raises:
            OSError: it cannot be bound.
        """
        server = aio.server(
            interceptors=(GuardRequests(max_rpcs_of_host=self._limits.max_rpcs_of_host),),
            options=(
                ("grpc.max_receive_message_length", self._limits.max_message_bytes),
                ("grpc.max_send_message_length", self._limits.max_message_bytes),
                ("grpc.max_metadata_size", self._limits.max_metadata_bytes),
                ("grpc.absolute_max_metadata_size", self._limits.max_metadata_bytes),
                ("grpc.max_concurrent_streams", self._limits.max_rpcs_of_host),
                ("grpc.max_allowed_incoming_connections", self._limits.max_connections),
                ("grpc.so_reuseport", 0),  # a port in use must be an error
                # A client may ping as often as kubectl and Go's default allow; we ping to find dead ones.
                ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
                ("grpc.http2.max_ping_strikes", 2),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.keepalive_time_ms", 30_000),
                ("grpc.keepalive_timeout_ms", 10_000),
                # Idle connections must not keep other clients out.
                ("grpc.server_handshake_timeout_ms", round(1000 * self._limits.handshake_seconds)),
                ("grpc.max_connection_idle_ms", round(1000 * self._limits.idle_seconds)),
            ),
            maximum_concurrent_rpcs=self._limits.max_rpcs,
        )
        for register in self._services.values():
            register(server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection((*self._services, HEALTH, reflection.SERVICE_NAME), server)
        try:
            if self._credentials is None:
                server.add_insecure_port(self._address)
            else:
                server.add_secure_port(self._address, self._credentials)
        except RuntimeError as error:
            raise OSError(f"gRPC cannot listen on {self._address}: {error}") from error
        self._server = server
        await server.start()
        self.shares.start(self._port)
        self._tick()

    def announce_end(self) -> None:
        """Not serving from now on; watches of health get this status and end."""
        if self._timer is not None:
            self._timer.cancel()
        self.shares.stop()
        self._health.stop()

    async def stop(self) -> None:
        """Let rpcs under way end within GRACE, close the port. Harmless if not started."""
        self.announce_end()
        if self._server is not None:
            await self._server.stop(GRACE)
            self._server = None

    def refresh(self) -> None:
        """Bring health up to date; runs each REFRESH_PERIOD."""
        self._health.serve(self._ready() is None)
        self._on_refresh()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(REFRESH_PERIOD, self._tick)
        self.refresh()
