from collections.abc import Mapping
from typing import ClassVar

from google.protobuf import descriptor, message
from google.protobuf.internal.containers import MessageMap

DESCRIPTOR: descriptor.FileDescriptor

class HealthCheckRequest(message.Message):
    service: str
    def __init__(self, *, service: str = ...) -> None: ...

class HealthCheckResponse(message.Message):
    class ServingStatus(int): ...
    UNKNOWN: ClassVar[ServingStatus]
    SERVING: ClassVar[ServingStatus]
    NOT_SERVING: ClassVar[ServingStatus]
    SERVICE_UNKNOWN: ClassVar[ServingStatus]
    status: ServingStatus
    def __init__(self, *, status: ServingStatus = ...) -> None: ...

class HealthListRequest(message.Message): ...

class HealthListResponse(message.Message):
    statuses: MessageMap[str, HealthCheckResponse]
    def __init__(self, *, statuses: Mapping[str, HealthCheckResponse] = ...) -> None: ...
