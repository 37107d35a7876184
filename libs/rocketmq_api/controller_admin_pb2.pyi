from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Liveness(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LIVENESS_UNSPECIFIED: _ClassVar[Liveness]
    LIVENESS_ALIVE: _ClassVar[Liveness]
    LIVENESS_DEAD: _ClassVar[Liveness]
    LIVENESS_UNHEARD: _ClassVar[Liveness]

class MemberRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MEMBER_ROLE_UNSPECIFIED: _ClassVar[MemberRole]
    MEMBER_ROLE_VOTER: _ClassVar[MemberRole]
    MEMBER_ROLE_LEARNER: _ClassVar[MemberRole]
LIVENESS_UNSPECIFIED: Liveness
LIVENESS_ALIVE: Liveness
LIVENESS_DEAD: Liveness
LIVENESS_UNHEARD: Liveness
MEMBER_ROLE_UNSPECIFIED: MemberRole
MEMBER_ROLE_VOTER: MemberRole
MEMBER_ROLE_LEARNER: MemberRole

class GetGroupRequest(_message.Message):
    __slots__ = ("broker_name",)
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    def __init__(self, broker_name: _Optional[str] = ...) -> None: ...

class GetGroupResponse(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: Group
    def __init__(self, group: _Optional[_Union[Group, _Mapping]] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("cluster_name",)
    CLUSTER_NAME_FIELD_NUMBER: _ClassVar[int]
    cluster_name: str
    def __init__(self, cluster_name: _Optional[str] = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[Group]
    def __init__(self, groups: _Optional[_Iterable[_Union[Group, _Mapping]]] = ...) -> None: ...

class WatchGroupsRequest(_message.Message):
    __slots__ = ("broker_name",)
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    def __init__(self, broker_name: _Optional[str] = ...) -> None: ...

class WatchGroupsResponse(_message.Message):
    __slots__ = ("kind", "group")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[WatchGroupsResponse.Kind]
        KIND_CURRENT: _ClassVar[WatchGroupsResponse.Kind]
        KIND_SYNCED: _ClassVar[WatchGroupsResponse.Kind]
        KIND_CHANGED: _ClassVar[WatchGroupsResponse.Kind]
        KIND_REMOVED: _ClassVar[WatchGroupsResponse.Kind]
    KIND_UNSPECIFIED: WatchGroupsResponse.Kind
    KIND_CURRENT: WatchGroupsResponse.Kind
    KIND_SYNCED: WatchGroupsResponse.Kind
    KIND_CHANGED: WatchGroupsResponse.Kind
    KIND_REMOVED: WatchGroupsResponse.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    kind: WatchGroupsResponse.Kind
    group: Group
    def __init__(self, kind: _Optional[_Union[WatchGroupsResponse.Kind, str]] = ..., group: _Optional[_Union[Group, _Mapping]] = ...) -> None: ...

class Group(_message.Message):
    __slots__ = ("cluster_name", "broker_name", "master_epoch", "sync_state_set_epoch", "master_broker_id", "master_address", "replicas", "next_broker_id")
    CLUSTER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    MASTER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SYNC_STATE_SET_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MASTER_BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    MASTER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    NEXT_BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_name: str
    broker_name: str
    master_epoch: int
    sync_state_set_epoch: int
    master_broker_id: int
    master_address: str
    replicas: _containers.RepeatedCompositeFieldContainer[Replica]
    next_broker_id: int
    def __init__(self, cluster_name: _Optional[str] = ..., broker_name: _Optional[str] = ..., master_epoch: _Optional[int] = ..., sync_state_set_epoch: _Optional[int] = ..., master_broker_id: _Optional[int] = ..., master_address: _Optional[str] = ..., replicas: _Optional[_Iterable[_Union[Replica, _Mapping]]] = ..., next_broker_id: _Optional[int] = ...) -> None: ...

class Replica(_message.Message):
    __slots__ = ("broker_id", "address", "in_sync_state_set", "liveness", "max_offset", "confirm_offset", "epoch", "election_priority", "heartbeat_age_millis")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_STATE_SET_FIELD_NUMBER: _ClassVar[int]
    LIVENESS_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ELECTION_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_AGE_MILLIS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    address: str
    in_sync_state_set: bool
    liveness: Liveness
    max_offset: int
    confirm_offset: int
    epoch: int
    election_priority: int
    heartbeat_age_millis: int
    def __init__(self, broker_id: _Optional[int] = ..., address: _Optional[str] = ..., in_sync_state_set: _Optional[bool] = ..., liveness: _Optional[_Union[Liveness, str]] = ..., max_offset: _Optional[int] = ..., confirm_offset: _Optional[int] = ..., epoch: _Optional[int] = ..., election_priority: _Optional[int] = ..., heartbeat_age_millis: _Optional[int] = ...) -> None: ...

class ElectMasterRequest(_message.Message):
    __slots__ = ("broker_name", "broker_id", "allow_unclean")
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    ALLOW_UNCLEAN_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    broker_id: int
    allow_unclean: bool
    def __init__(self, broker_name: _Optional[str] = ..., broker_id: _Optional[int] = ..., allow_unclean: _Optional[bool] = ...) -> None: ...

class ElectMasterResponse(_message.Message):
    __slots__ = ("group", "elected")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ELECTED_FIELD_NUMBER: _ClassVar[int]
    group: Group
    elected: bool
    def __init__(self, group: _Optional[_Union[Group, _Mapping]] = ..., elected: _Optional[bool] = ...) -> None: ...

class CleanBrokerDataRequest(_message.Message):
    __slots__ = ("broker_name", "broker_ids", "whole_group", "clean_living")
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_IDS_FIELD_NUMBER: _ClassVar[int]
    WHOLE_GROUP_FIELD_NUMBER: _ClassVar[int]
    CLEAN_LIVING_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    broker_ids: _containers.RepeatedScalarFieldContainer[int]
    whole_group: bool
    clean_living: bool
    def __init__(self, broker_name: _Optional[str] = ..., broker_ids: _Optional[_Iterable[int]] = ..., whole_group: _Optional[bool] = ..., clean_living: _Optional[bool] = ...) -> None: ...

class CleanBrokerDataResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetMembersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetMembersResponse(_message.Message):
    __slots__ = ("group", "answered_by", "leader_id", "term", "commit_index", "applied_index", "members", "lineage", "members_index")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_BY_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_INDEX_FIELD_NUMBER: _ClassVar[int]
    group: str
    answered_by: str
    leader_id: str
    term: int
    commit_index: int
    applied_index: int
    members: _containers.RepeatedCompositeFieldContainer[Member]
    lineage: str
    members_index: int
    def __init__(self, group: _Optional[str] = ..., answered_by: _Optional[str] = ..., leader_id: _Optional[str] = ..., term: _Optional[int] = ..., commit_index: _Optional[int] = ..., applied_index: _Optional[int] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., lineage: _Optional[str] = ..., members_index: _Optional[int] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("id", "address", "grpc_address", "is_leader", "connected", "match_index", "role", "counts")
    ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    GRPC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    IS_LEADER_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    MATCH_INDEX_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    address: str
    grpc_address: str
    is_leader: bool
    connected: bool
    match_index: int
    role: MemberRole
    counts: bool
    def __init__(self, id: _Optional[str] = ..., address: _Optional[str] = ..., grpc_address: _Optional[str] = ..., is_leader: _Optional[bool] = ..., connected: _Optional[bool] = ..., match_index: _Optional[int] = ..., role: _Optional[_Union[MemberRole, str]] = ..., counts: _Optional[bool] = ...) -> None: ...

class TransferLeadershipRequest(_message.Message):
    __slots__ = ("target_id",)
    TARGET_ID_FIELD_NUMBER: _ClassVar[int]
    target_id: str
    def __init__(self, target_id: _Optional[str] = ...) -> None: ...

class TransferLeadershipResponse(_message.Message):
    __slots__ = ("leader_id",)
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    leader_id: str
    def __init__(self, leader_id: _Optional[str] = ...) -> None: ...

class AddMemberRequest(_message.Message):
    __slots__ = ("id", "address")
    ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    id: str
    address: str
    def __init__(self, id: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class AddMemberResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveMemberRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class RemoveMemberResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
