"""Headers and bodies of the name server's API except a registration's body (`registration`), as 5.3.3 spells them.

The name server answers them; brokers, clients and tools send them. Field names are Java's in snake_case; they have
defaults, because Java leaves out null keys. Codes without a header or body of their own are not listed.
Source: rocketmq-all-5.3.3: DefaultRequestProcessor.java, ClientRequestProcessor.java, RemotingSerializable.java.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import field

from rocketmq_formats.json import fastjson
from rocketmq_formats.json.bodies import Body, Int32, Int64, encode_body
from rocketmq_formats.remoting.controller import BrokerMemberGroup, Name
from rocketmq_formats.remoting.headers import Header
from rocketmq_formats.topics import TopicName

MASTER_ID = 0
"""The broker id under which a name server lists a group's master, whatever its controller id."""
ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""KV namespace whose table answers every registration (103)."""
STANDARD_JSON_VERSION: Final = 401
"""V4_9_4: the first senders of 105 that get standard JSON without asking for it."""

# 100 PUT_KV_CONFIG, 101 GET_KV_CONFIG, 102 DELETE_KV_CONFIG, 219 GET_KVLIST_BY_NAMESPACE


class PutKVConfigRequestHeader(Header, frozen=True):
    namespace: str
    key: str
    value: str


class KVConfigRequestHeader(Header, frozen=True):
    """Of 101 and 102."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header, frozen=True):
    value: str | None = None


class GetKVListByNamespaceRequestHeader(Header, frozen=True):
    namespace: str


class KVTable(Body, frozen=True):
    """Body of the answers to 103, 219 and a broker's 28: names and texts."""

    table: Mapping[str, str] = field(default_factory=dict)


# 103 REGISTER_BROKER, 104 UNREGISTER_BROKER


class RegisterBrokerRequestHeader(Header, frozen=True):
    """`body_crc32` as `registration.body_crc32` has it, 0 not checked; the timeout is absent without RIP-32."""

    broker_name: Name
    broker_addr: Name
    cluster_name: Name
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int64 = 0
    zone_name: str | None = field(default=None, name="__ZONE_NAME")


class RegisterBrokerResponseHeader(Header, frozen=True):
    """For a slave whose master is registered: where that is."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerRequestHeader(Header, frozen=True):
    broker_name: Name
    broker_addr: Name
    cluster_name: Name
    broker_id: Int64


# 105 GET_ROUTEINFO_BY_TOPIC


class BrokerData(Body, frozen=True):
    """The addresses of one group by broker id; Java writes the ids as unquoted keys."""

    broker_name: str
    cluster: str = ""
    broker_addrs: Mapping[int, str] = field(default_factory=dict)
    enable_acting_master: bool = False
    zone_name: str | msgspec.UnsetType | None = msgspec.UNSET


class GetRouteInfoRequestHeader(Header, frozen=True):
    """Request header of 105; `accept_standard_json_only` true makes name servers quote integer keys."""

    topic: str
    accept_standard_json_only: bool | None = None


class QueueData(Body, frozen=True):
    """Queues of a topic on one group; `perm` bits: 4 read, 2 write, 1 inherit."""

    broker_name: str = ""
    read_queue_nums: Int32 = 0
    write_queue_nums: Int32 = 0
    perm: Int32 = 0
    topic_sys_flag: Int32 = 0


class TopicQueueMappingInfo(Body, frozen=True):
    """A static topic at one broker; a Java broker registers it, clients get it with the route."""

    topic: str | None = None
    scope: str | None = "__global__"
    total_queues: Int32 = 0
    bname: str | None = None
    epoch: Int64 = 0
    dirty: bool = False
    curr_id_map: Mapping[int, int] | None = field(default_factory=dict)


class TopicRouteData(Body, frozen=True):
    """Body of 105's response and of 217's request."""

    broker_datas: Sequence[BrokerData] = ()
    queue_datas: Sequence[QueueData] = ()
    filter_server_table: Mapping[str, Sequence[str]] | None = field(default_factory=dict)
    order_topic_conf: str | msgspec.UnsetType | None = msgspec.UNSET
    topic_queue_mapping_by_broker: Mapping[str, TopicQueueMappingInfo] | msgspec.UnsetType | None = msgspec.UNSET


def encode_route(route: TopicRouteData, *, standard: bool) -> bytes:
    """A route as JSON: standard and plain ASCII, or, for older clients, with bare integer keys."""
    return fastjson.escape(encode_body(route)) if standard else fastjson.dumps(msgspec.to_builtins(route))


# 106 GET_BROKER_CLUSTER_INFO


class ClusterInfo(Body, frozen=True):
    """Body of 106's response: broker name -> addresses, cluster name -> broker names."""

    broker_addr_table: Mapping[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: Mapping[str, frozenset[str]] = field(default_factory=dict)


# 205 WIPE_WRITE_PERM_OF_BROKER, 327 ADD_WRITE_PERM_OF_BROKER


class WritePermRequestHeader(Header, frozen=True):
    """Of 205 and 327."""

    broker_name: str


class WipeWritePermResponseHeader(Header, frozen=True):
    wipe_topic_count: Int32


class AddWritePermResponseHeader(Header, frozen=True):
    add_topic_count: Int32


# 206 GET_ALL_TOPIC_LIST, 224 GET_TOPICS_BY_CLUSTER, 304 GET_SYSTEM_TOPIC_LIST, 311, 312, 313 by sys flag


class GetTopicsByClusterRequestHeader(Header, frozen=True):
    cluster: str


class TopicList(Body, frozen=True):
    """Body of their answers; `broker_addr` only in 304's, where Java puts any broker's address."""

    topic_list: Sequence[str] = ()
    broker_addr: str | msgspec.UnsetType | None = msgspec.UNSET


# 216 DELETE_TOPIC_IN_NAMESRV, 217 REGISTER_TOPIC_IN_NAMESRV


class DeleteTopicFromNamesrvRequestHeader(Header, frozen=True):
    topic: TopicName
    cluster_name: str | None = None


class RegisterTopicRequestHeader(Header, frozen=True):
    """The body is a `TopicRouteData` whose `queue_datas` count."""

    topic: TopicName


# 322 QUERY_DATA_VERSION; the body is a `topics.DataVersion`, both ways


class QueryDataVersionRequestHeader(Header, frozen=True):
    broker_name: Name
    broker_addr: Name
    cluster_name: Name
    broker_id: Int64


class QueryDataVersionResponseHeader(Header, frozen=True):
    changed: bool


# 901 GET_BROKER_MEMBER_GROUP


class GetBrokerMemberGroupRequestHeader(Header, frozen=True):
    cluster_name: str
    broker_name: str


class GetBrokerMemberGroupResponseBody(Body, frozen=True):
    broker_member_group: BrokerMemberGroup | None = None


# 905 NOTIFY_MIN_BROKER_ID_CHANGE, name server to broker, oneway


class NotifyMinBrokerIdChangeRequestHeader(Header, frozen=True):
    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
