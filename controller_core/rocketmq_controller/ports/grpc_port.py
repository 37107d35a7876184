"""The controller's gRPC port: the admin service on a `GrpcServer`. Built and run by app."""

import asyncio
from collections.abc import Callable

from rocketmq_api import controller_admin_pb2 as pb
from rocketmq_api.controller_admin_pb2_grpc import add_ControllerAdminServicer_to_server
from rocketmq_controller.domain.liveness import HeartbeatTable
from rocketmq_controller.ports.grpc_admin import ControllerAdmin
from rocketmq_controller.ports.watch import End, Watches
from rocketmq_controller.service import ControllerService
from rocketmq_runtime.grpc.server import GrpcLimits, GrpcServer
from rocketmq_runtime.grpc.tls import ServerTls, server_credentials

SERVICE = pb.DESCRIPTOR.services_by_name["ControllerAdmin"].full_name

LIMITS = GrpcLimits()


class GrpcApi:
    """One per process; used in the event loop only."""

    def __init__(
        self,
        service: ControllerService,
        heartbeats: HeartbeatTable,
        ready: Callable[[], str | None],
        limits: GrpcLimits = LIMITS,
    ) -> None:
        """Nothing is opened yet; `ready` is `Health.ready`.

        Raises:
            SettingsError: the TLS files cannot be used; the text names the key.
        """
        settings = service.config.settings
        tls = ServerTls(
            keys="controllerGrpcTls",
            cert_file=settings.controller_grpc_tls_cert_file,
            key_file=settings.controller_grpc_tls_key_file,
            ca_file=settings.controller_grpc_tls_ca_file,
        )
        self.watches = Watches(
            machine=service.machine,
            heartbeats=heartbeats,
            is_leader=lambda: service.replica.is_leader,
            now=asyncio.get_running_loop().time,
            limit=limits.max_watches,
        )
        admin = ControllerAdmin(service, heartbeats, self.watches, max_message_bytes=limits.max_message_bytes)
        self.server = GrpcServer(
            host=settings.controller_listen_host or "::",
            port=settings.grpc_port,
            services={SERVICE: lambda server: add_ControllerAdminServicer_to_server(admin, server)},
            ready=ready,
            credentials=server_credentials(tls),
            limits=limits,
            on_refresh=self.watches.sweep,
        )

    async def start(self) -> None:
        """Open the port.

        Raises:
            OSError: it cannot be bound.
        """
        await self.server.start()

    async def stop(self) -> None:
        """End the watches, let rpcs under way end, close the port. Harmless if not started."""
        self.server.announce_end()
        self.watches.end_all(End.STOPPING)
        await self.server.stop()

    def refresh(self) -> None:
        """Bring watchers and health up to date; runs each `grpc_server.REFRESH_PERIOD`."""
        self.server.refresh()
