from collections.abc import Iterable

from grpc import aio

SERVICE_NAME: str

def enable_server_reflection(service_names: Iterable[str], server: aio.Server) -> None: ...
