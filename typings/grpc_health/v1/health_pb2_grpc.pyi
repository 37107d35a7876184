from grpc import aio
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse

class HealthServicer:
    async def Check(
        self, request: HealthCheckRequest, context: aio.ServicerContext[HealthCheckRequest, HealthCheckResponse]
    ) -> HealthCheckResponse: ...
    async def List(
        self, request: HealthListRequest, context: aio.ServicerContext[HealthListRequest, HealthListResponse]
    ) -> HealthListResponse: ...
    async def Watch(
        self, request: HealthCheckRequest, context: aio.ServicerContext[HealthCheckRequest, HealthCheckResponse]
    ) -> None: ...

def add_HealthServicer_to_server(servicer: HealthServicer, server: aio.Server) -> None: ...
