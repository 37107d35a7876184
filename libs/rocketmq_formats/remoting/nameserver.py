"""Headers and bodies of the name server requests our tools make: GET_ROUTEINFO_BY_TOPIC (105) and 106.

GET_BROKER_CLUSTER_INFO (106) has neither request header nor request body. Java leaves out null keys, hence defaults.
Source: remoting reference, sections 6 and 8.
"""

from collections.abc import Mapping, Sequence

from msgspec import field

from rocketmq_formats.remoting.bodies import Body
from rocketmq_formats.remoting.headers import Header

MASTER_ID = 0
"""The broker id under which a name server lists a group's master, whatever its controller id."""


class BrokerData(Body, frozen=True):
    """The addresses of one group by broker id; Java writes the ids as unquoted keys."""

    broker_name: str
    cluster: str = ""
    broker_addrs: Mapping[int, str] = field(default_factory=dict)
    enable_acting_master: bool = False


class ClusterInfo(Body, frozen=True):
    """Body of 106's response: broker name -> addresses, cluster name -> broker names."""

    broker_addr_table: Mapping[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: Mapping[str, frozenset[str]] = field(default_factory=dict)


class GetRouteInfoRequestHeader(Header, frozen=True):
    """Request header of 105; `accept_standard_json_only` true makes name servers quote integer keys."""

    topic: str
    accept_standard_json_only: bool | None = None


class QueueData(Body, frozen=True):
    """Queues of a topic on one group; `perm` bits: 4 read, 2 write, 1 inherit."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


class TopicRouteData(Body, frozen=True, omit_defaults=True):
    """Body of 105's response."""

    broker_datas: Sequence[BrokerData] = ()
    queue_datas: Sequence[QueueData] = ()
    order_topic_conf: str | None = None
