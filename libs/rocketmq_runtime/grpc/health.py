"""grpc.health.v1 of one process: SERVING while /readyz is 200. Updated by `server`.

The servicer that comes with grpcio-health-checking is not used: its Watch writes to the client while it holds the lock
that a change of status needs, so one client that stopped reading would block the updates of all others.
"""

import asyncio
from collections.abc import Iterable
from typing import TypeVar

import grpc
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class HealthService(health_pb2_grpc.HealthServicer):
    """One status for the server as a whole (the empty name) and for each of its services."""

    def __init__(self, services: Iterable[str], *, max_watches: int) -> None:
        self._services = ("", *services)
        self._max_watches = max_watches
        self._watches = 0
        self._status = health_pb2.HealthCheckResponse.NOT_SERVING
        self._stopping = False
        self._changed = asyncio.Event()
        """Set once, at the next change; replaced then."""

    def serve(self, serving: bool) -> None:  # noqa: FBT001 - there is nothing else it could mean
        """Publish whether this process can serve now."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        if status != self._status and not self._stopping:
            self._status = status
            self._notify()

    def stop(self) -> None:
        """Not serving from now on; watches get this status and end."""
        self._status = health_pb2.HealthCheckResponse.NOT_SERVING
        self._stopping = True
        self._notify()

    async def Check(  # noqa: N802 - gRPC's names
        self,
        request: health_pb2.HealthCheckRequest,
        context: aio.ServicerContext[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse],
    ) -> health_pb2.HealthCheckResponse:
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return health_pb2.HealthCheckResponse(status=self._status)

    async def List(  # noqa: N802
        self,
        request: health_pb2.HealthListRequest,  # noqa: ARG002
        context: aio.ServicerContext[health_pb2.HealthListRequest, health_pb2.HealthListResponse],  # noqa: ARG002
    ) -> health_pb2.HealthListResponse:
        status = health_pb2.HealthCheckResponse(status=self._status)
        return health_pb2.HealthListResponse(statuses=dict.fromkeys(self._services, status))

    async def Watch(  # noqa: N802
        self,
        request: health_pb2.HealthCheckRequest,
        context: aio.ServicerContext[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse],
    ) -> None:
        if self._watches >= self._max_watches:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{self._max_watches} watches are open already")
        self._watches += 1
        try:
            await self._watch(request.service, context)
        finally:
            self._watches -= 1

    async def _watch(
        self, service: str, context: aio.ServicerContext[RequestT, health_pb2.HealthCheckResponse]
    ) -> None:
        sent = None
        while True:
            changed, stopping, status = self._changed, self._stopping, self._status
            if service not in self._services:
                status = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
            if status != sent:
                await context.write(health_pb2.HealthCheckResponse(status=status))
                sent = status
            if stopping:
                return
            await changed.wait()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
