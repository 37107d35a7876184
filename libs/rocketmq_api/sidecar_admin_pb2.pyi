from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNKNOWN: _ClassVar[Role]
    ROLE_MASTER: _ClassVar[Role]
    ROLE_SLAVE: _ClassVar[Role]
    ROLE_NONE: _ClassVar[Role]
ROLE_UNKNOWN: Role
ROLE_MASTER: Role
ROLE_SLAVE: Role
ROLE_NONE: Role

class GetReplicaRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Replica(_message.Message):
    __slots__ = ("cluster_name", "broker_name", "broker_id", "role", "master_broker_id", "master_epoch", "sync_state_set", "sync_state_set_epoch", "max_offset", "confirm_offset", "min_offset", "epochs", "fenced", "fence_reason", "fenced_at_millis", "broker_connected", "ready_reason", "engine", "version", "address", "acting_master", "remark")
    CLUSTER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    MASTER_BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    MASTER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SYNC_STATE_SET_FIELD_NUMBER: _ClassVar[int]
    SYNC_STATE_SET_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    FENCE_REASON_FIELD_NUMBER: _ClassVar[int]
    FENCED_AT_MILLIS_FIELD_NUMBER: _ClassVar[int]
    BROKER_CONNECTED_FIELD_NUMBER: _ClassVar[int]
    READY_REASON_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ACTING_MASTER_FIELD_NUMBER: _ClassVar[int]
    REMARK_FIELD_NUMBER: _ClassVar[int]
    cluster_name: str
    broker_name: str
    broker_id: int
    role: Role
    master_broker_id: int
    master_epoch: int
    sync_state_set: _containers.RepeatedScalarFieldContainer[int]
    sync_state_set_epoch: int
    max_offset: int
    confirm_offset: int
    min_offset: int
    epochs: _containers.RepeatedCompositeFieldContainer[Epoch]
    fenced: bool
    fence_reason: str
    fenced_at_millis: int
    broker_connected: bool
    ready_reason: str
    engine: str
    version: str
    address: str
    acting_master: bool
    remark: str
    def __init__(self, cluster_name: _Optional[str] = ..., broker_name: _Optional[str] = ..., broker_id: _Optional[int] = ..., role: _Optional[_Union[Role, str]] = ..., master_broker_id: _Optional[int] = ..., master_epoch: _Optional[int] = ..., sync_state_set: _Optional[_Iterable[int]] = ..., sync_state_set_epoch: _Optional[int] = ..., max_offset: _Optional[int] = ..., confirm_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., epochs: _Optional[_Iterable[_Union[Epoch, _Mapping]]] = ..., fenced: _Optional[bool] = ..., fence_reason: _Optional[str] = ..., fenced_at_millis: _Optional[int] = ..., broker_connected: _Optional[bool] = ..., ready_reason: _Optional[str] = ..., engine: _Optional[str] = ..., version: _Optional[str] = ..., address: _Optional[str] = ..., acting_master: _Optional[bool] = ..., remark: _Optional[str] = ...) -> None: ...

class Epoch(_message.Message):
    __slots__ = ("epoch", "start_offset", "end_offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    start_offset: int
    end_offset: int
    def __init__(self, epoch: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class GetReplicaResponse(_message.Message):
    __slots__ = ("replica",)
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    replica: Replica
    def __init__(self, replica: _Optional[_Union[Replica, _Mapping]] = ...) -> None: ...

class SetFencedRequest(_message.Message):
    __slots__ = ("fenced", "reason")
    FENCED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    fenced: bool
    reason: str
    def __init__(self, fenced: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class SetFencedResponse(_message.Message):
    __slots__ = ("replica",)
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    replica: Replica
    def __init__(self, replica: _Optional[_Union[Replica, _Mapping]] = ...) -> None: ...

class HandOverRequest(_message.Message):
    __slots__ = ("broker_id", "timeout_millis")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MILLIS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    timeout_millis: int
    def __init__(self, broker_id: _Optional[int] = ..., timeout_millis: _Optional[int] = ...) -> None: ...

class HandOverResponse(_message.Message):
    __slots__ = ("master_broker_id", "master_epoch")
    MASTER_BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    MASTER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    master_broker_id: int
    master_epoch: int
    def __init__(self, master_broker_id: _Optional[int] = ..., master_epoch: _Optional[int] = ...) -> None: ...
