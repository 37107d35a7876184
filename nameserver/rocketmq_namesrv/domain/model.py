"""The values that go into and come out of the name server's tables; `routes` and `liveness` keep them.

Times are monotonic seconds, passed in by the shell. Source: rocketmq-all-5.3.3: RouteInfoManager.java.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.nameserver import TopicQueueMappingInfo
from rocketmq_formats.topics import DataVersion, TopicConfig

DEFAULT_TIMEOUT = 120.0
"""Seconds of silence after which a broker that declared no time-out is removed."""
SHORTEST_TIMEOUT, LONGEST_TIMEOUT = 1.0, 86_400.0
MAX_NAME = 1024
"""Characters of a topic name; POP's retry topics join a group and a topic, so Java's 255 is not the longest."""


class TableRefusedError(Exception):
    """A request that the tables refuse; nothing was changed. The text goes to the peer."""

    response_code: ClassVar[ResponseCode] = ResponseCode.SYSTEM_ERROR


class InvalidRequestError(TableRefusedError):
    """A name, an id or an address that no broker can have."""

    response_code = ResponseCode.INVALID_PARAMETER


class TableFullError(TableRefusedError):
    """One more would exceed a limit of the tables; the text names the limit."""

    response_code = ResponseCode.SYSTEM_BUSY


class NotRegisteredError(TableRefusedError):
    """An incremental registration (one topic) of a broker whose full one has not come yet."""


class OtherBrokerError(TableRefusedError):
    """A request would remove another broker than the one that it names; the text names both."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the tables against strangers; of each one host gets half at most (`rocketmq_formats.shares`)."""

    brokers: int = 20_000
    """Broker names."""
    members: int = 128
    """Addresses of one broker name."""
    topics: int = 400_000
    queue_datas: int = 4_000_000
    """Pairs of topic and broker name."""


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """One REGISTER_BROKER (103); `broker_id` 0 is the master."""

    cluster_name: str
    broker_name: str
    broker_id: int
    address: str
    ha_server_addr: str
    zone_name: str | None = None
    timeout: float = DEFAULT_TIMEOUT
    """Seconds of silence after which the broker is removed."""
    enable_acting_master: bool | None = None
    """None: the broker is older than 5.0 and does not send the key."""
    data_version: DataVersion = DataVersion()
    topics: Mapping[str, TopicConfig] = {}
    mappings: Mapping[str, TopicQueueMappingInfo] = {}
    filter_servers: Sequence[str] = ()


class MinBrokerIdChange(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest id of a broker name has changed: the content of the notices (905), and their recipients."""

    broker_name: str
    min_broker_id: int
    min_broker_addr: str
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
    recipients: tuple[str, ...] = ()


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a registration; the addresses are the master's, for a slave only."""

    ha_server_addr: str | None = None
    master_addr: str | None = None
    first: bool = False
    """The id is new at this broker name."""
    stale: str | None = None
    """The registration was ignored: this address holds the id with a greater state version."""
    change: MinBrokerIdChange | None = None


class Unregistered(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a broker's removal."""

    known: bool
    """It was in a table."""
    broker_name: str
    address: str
    change: MinBrokerIdChange | None = None


class LiveBroker:
    """One registered address: when it was last heard of, and over which connection it registered."""

    __slots__ = (
        "address",
        "broker_id",
        "broker_name",
        "cluster_name",
        "connection_id",
        "data_version",
        "filter_servers",
        "ha_server_addr",
        "host",
        "last_update",
        "timeout",
    )

    def __init__(self, registration: Registration, now: float, connection_id: int, host: str) -> None:
        self.cluster_name = registration.cluster_name
        self.broker_name = registration.broker_name
        self.broker_id = registration.broker_id
        self.address = registration.address
        self.ha_server_addr = registration.ha_server_addr
        self.timeout = registration.timeout
        self.data_version = registration.data_version
        self.filter_servers = tuple(registration.filter_servers)
        self.last_update = now
        self.connection_id = connection_id
        self.host = host
