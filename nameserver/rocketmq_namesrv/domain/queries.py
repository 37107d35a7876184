"""What the tables answer to clients and tools, as the bodies that 5.3.3 sends.

Pure reads of `RouteTables`; the order is by name where Java's is by hash.
Source: rocketmq-all-5.3.3: DefaultRequestProcessor.java, RouteInfoManager.java.
"""

from collections.abc import Callable

import msgspec

from rocketmq_formats.remoting.controller import BrokerMemberGroup
from rocketmq_formats.remoting.nameserver import MASTER_ID, BrokerData, ClusterInfo, TopicList, TopicRouteData
from rocketmq_formats.topics import PERM_WRITE, SYNC_MEMBER_PREFIX
from rocketmq_namesrv.domain.tables import BrokerGroup, RouteTables

FLAG_UNIT = 1
FLAG_UNIT_SUB = 2


def route(
    tables: RouteTables, topic: str, *, acting_master: bool, order_conf: str | None = None
) -> TopicRouteData | None:
    """The route of `topic`; None if no registered broker has it.

    `acting_master` (supportActingMaster): the smallest id of a group without a master, that allows it and whose queues
    are read-only, is presented as 0 - to clients, not to the brokers that look each other up in their own topic.
    """
    queues = tables.topics.get(topic)
    if queues is None:
        return None
    groups = [tables.groups[name] for name in sorted(queues)]
    mappings = {
        mapping.bname or group.name: mapping for group in groups if (mapping := group.mappings.get(topic)) is not None
    }
    presents = acting_master and not topic.startswith(SYNC_MEMBER_PREFIX)
    return TopicRouteData(
        broker_datas=[
            _broker_data(group, _with_acting_master(group.addresses))
            if presents and _acts(group, queues[group.name].perm)
            else _broker_data(group, group.addresses)
            for group in groups
        ],
        queue_datas=[queues[group.name] for group in groups],
        filter_server_table=_filter_servers(tables, groups),
        order_topic_conf=msgspec.UNSET if order_conf is None else order_conf,
        topic_queue_mapping_by_broker=mappings or msgspec.UNSET,
    )


def cluster_info(tables: RouteTables) -> ClusterInfo:
    """Every broker name with its addresses, every cluster with its broker names (106); never with acting masters."""
    return ClusterInfo(
        broker_addr_table={name: _broker_data(group, group.addresses) for name, group in tables.groups.items()},
        cluster_addr_table={cluster: frozenset(names) for cluster, names in tables.clusters.items()},
    )


def member_group(tables: RouteTables, cluster_name: str, broker_name: str) -> BrokerMemberGroup:
    """The addresses of a broker name (901); none if it is unknown, and the names as they were asked for."""
    group = tables.groups.get(broker_name)
    return BrokerMemberGroup(
        cluster=cluster_name, broker_name=broker_name, broker_addrs={} if group is None else dict(group.addresses)
    )


def all_topics(tables: RouteTables) -> TopicList:
    """Every topic (206)."""
    return TopicList(topic_list=sorted(tables.topics))


def topics_of_cluster(tables: RouteTables, cluster_name: str) -> TopicList:
    """The topics of a cluster's brokers (224); none if it is unknown."""
    topics: set[str] = set()
    for name in tables.clusters.get(cluster_name, ()):
        topics.update(tables.groups[name].queues)
    return TopicList(topic_list=sorted(topics))


def system_topics(tables: RouteTables) -> TopicList:
    """The topics that clusters and broker names make by being there, and the address of one broker (304)."""
    names = {*tables.clusters, *tables.groups}
    first = min(tables.groups, default=None)
    if first is None:
        return TopicList(topic_list=sorted(names))
    addresses = tables.groups[first].addresses
    return TopicList(topic_list=sorted(names), broker_addr=addresses[min(addresses)])


def unit_topics(tables: RouteTables) -> TopicList:
    """Topics of a unit (311)."""
    return _topics_where(tables, lambda flag: bool(flag & FLAG_UNIT))


def unit_sub_topics(tables: RouteTables) -> TopicList:
    """Topics that units subscribe to (312)."""
    return _topics_where(tables, lambda flag: bool(flag & FLAG_UNIT_SUB))


def unit_sub_ununit_topics(tables: RouteTables) -> TopicList:
    """Topics outside units that units subscribe to (313)."""
    return _topics_where(tables, lambda flag: flag & (FLAG_UNIT | FLAG_UNIT_SUB) == FLAG_UNIT_SUB)


def _topics_where(tables: RouteTables, wanted: Callable[[int], bool]) -> TopicList:
    """By the flags of the broker that registered the topic first, as in Java."""
    return TopicList(
        topic_list=sorted(
            topic for topic, queues in tables.topics.items() if wanted(next(iter(queues.values())).topic_sys_flag)
        )
    )


def _broker_data(group: BrokerGroup, addresses: dict[int, str]) -> BrokerData:
    return BrokerData(
        broker_name=group.name,
        cluster=group.cluster,
        broker_addrs=dict(sorted(addresses.items())),
        enable_acting_master=group.enable_acting_master,
        zone_name=msgspec.UNSET if group.zone_name is None else group.zone_name,
    )


def _acts(group: BrokerGroup, perm: int) -> bool:
    return group.enable_acting_master and MASTER_ID not in group.addresses and not perm & PERM_WRITE


def _with_acting_master(addresses: dict[int, str]) -> dict[int, str]:
    smallest = min(addresses)
    others = {broker_id: address for broker_id, address in addresses.items() if broker_id != smallest}
    return {MASTER_ID: addresses[smallest], **others}


def _filter_servers(tables: RouteTables, groups: list[BrokerGroup]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for group in groups:
        for address in group.addresses.values():
            servers = tables.live.filter_servers(address)
            if servers:
                found[address] = servers
    return found
