"""Who serves which topic: the tables of broker names, clusters and topics, and how registrations change them.

Pure: the shell passes the time and connection ids. The numbers in comments are the steps of a registration in
docs/protocol.md; `queries` reads the tables, `route_answers` keeps what they were encoded to.
Source: rocketmq-all-5.3.3: RouteInfoManager.java.

Differs from 5.3.3:
- A refused registration leaves nothing behind; Java keeps an empty broker name and cluster.
- An address that registers under another broker name leaves the first one; Java routes to it forever, which is
  wrong where addresses are given out again (pods).
- The last address of a broker name takes it out of every cluster, and static topics out of the routes.
- With deleteTopicWithBrokerRegistration an incremental registration (one topic) takes nothing off the broker.
- Write permission that a tool took off (205) stays off until a tool adds it (327).
- A new master gives write permission back to all topics that lost it when there was no master. Java gives it back only
  to those that the master registers, and its copy of the topics lacks one that was made in the last seconds.
- 104 removes only the broker that it names, see `identity`.
- 905 says that the smallest id has left only if it has.
"""

from rocketmq_formats.remoting.nameserver import MASTER_ID, QueueData
from rocketmq_formats.steps import Steps
from rocketmq_formats.topics import PERM_WRITE, TopicConfig
from rocketmq_namesrv.domain.model import (
    InvalidRequestError,
    LiveBroker,
    MinBrokerIdChange,
    NotRegisteredError,
    Registered,
    Registration,
    Unregistered,
)
from rocketmq_namesrv.domain.tables import BrokerGroup, RouteTables


def register(
    tables: RouteTables, registration: Registration, *, now: float, connection_id: int, host: str
) -> Steps[Registered]:
    """Take in one broker of `host`, topic by topic: other requests may come between, but no other registration of the
    broker name.

    Raises:
        InvalidRequestError: a negative id, or a name that is too long; or the broker leaves during the call, then none
            of its topics are left.
        TableFullError: one of the limits, or the host's share, would be exceeded.
        NotRegisteredError: one topic only, of a broker that is not registered.
    """
    group = tables.groups.get(registration.broker_name)
    _check(tables, registration, group, host)
    is_new = group is None
    if group is None:
        group = BrokerGroup(registration.broker_name, registration.cluster_name, host)
    broker_id, address = registration.broker_id, registration.address
    cluster, version = registration.cluster_name, registration.data_version
    previous_min = group.min_id  # 2

    holder = group.addresses.get(broker_id)
    holds_more = False
    if holder is not None and holder != address:
        alive = tables.live.get(holder)
        holds_more = alive is not None and alive.data_version.state_version > version.state_version
    if not holds_more and holder is None and len(registration.topics) == 1:  # 5
        raise NotRegisteredError("register broker failed")
    _leave_other_name(tables, registration)
    for other in [other for other, its in group.addresses.items() if its == address and other != broker_id]:  # 3
        del group.addresses[other]
        tables.group_changed(group)
    _set_traits(tables, group, registration)  # 1
    if holds_more:  # 4
        tables.live.remove(address)
        return Registered(stale=holder)

    if is_new:
        tables.add_group(group)
    tables.clusters.setdefault(cluster, set()).add(group.name)
    first = holder is None  # 6
    if holder != address:
        group.addresses[broker_id] = address
        tables.group_changed(group)
    is_prime_slave = (
        registration.enable_acting_master is not None and broker_id != MASTER_ID and broker_id == group.min_id
    )
    changed = first or tables.live.version(cluster, address) != version
    other_servers = tables.live.filter_servers(address) != tuple(registration.filter_servers)
    broker = LiveBroker(registration, now, connection_id, host)
    tables.live.put(broker)  # 8, before 7: a removal between two steps must find it
    if broker_id == MASTER_ID or is_prime_slave:  # 7
        topics = _take_topics(tables, group, registration, host, changed=changed)
        yield from _while_registered(topics, tables, group, broker)
    if other_servers:
        tables.group_changed(group)
    master = None if broker_id == MASTER_ID else group.addresses.get(MASTER_ID)  # 9
    master_live = None if master is None else tables.live.get(master)
    change = None
    if broker_id < previous_min:  # 10
        change = _min_id_change(group, ha_broker_addr=registration.ha_server_addr)
    return Registered(
        ha_server_addr=None if master_live is None else master_live.ha_server_addr,
        master_addr=None if master_live is None else master,
        first=first,
        change=change,
    )


def unregister(tables: RouteTables, *, broker_name: str, address: str) -> Unregistered:
    """Forget one address of a broker name; with the last one the name and its queues go."""
    broker = tables.live.get(address)
    known = broker is not None and broker.broker_name == broker_name
    if known:
        tables.live.remove(address)
    group = tables.groups.get(broker_name)
    if group is None:
        return Unregistered(known=known, broker_name=broker_name, address=address)
    previous_min = group.min_id
    ids = [broker_id for broker_id, its in group.addresses.items() if its == address]
    if ids:
        tables.remove_ids(group, ids)
    change = None
    if previous_min in ids and group.addresses and group.enable_acting_master:
        change = _min_id_change(group, offline_broker_addr=address)
    return Unregistered(known=known or bool(ids), broker_name=broker_name, address=address, change=change)


def expire(tables: RouteTables, broker: LiveBroker) -> Unregistered:
    """Forget a broker that was silent for too long (`LiveTable.expired`), or whose connection ended."""
    return unregister(tables, broker_name=broker.broker_name, address=broker.address)


def _check(tables: RouteTables, registration: Registration, group: BrokerGroup | None, host: str) -> None:
    if registration.broker_id < 0:
        raise InvalidRequestError(f"brokerId {registration.broker_id} is negative")
    if not registration.address:
        raise InvalidRequestError("brokerAddr is empty")
    if group is None:
        tables.check_name(host)
    elif registration.broker_id not in group.addresses:
        tables.check_member(group, host)
    new = registration.topics.keys() - (group.queues.keys() if group is not None else set())
    if new:
        tables.check_topics(new)
        tables.check_room(host, topics=len(new - tables.topics.keys()), pairs=len(new))


def _leave_other_name(tables: RouteTables, registration: Registration) -> None:
    known = tables.live.get(registration.address)
    if known is not None and known.broker_name != registration.broker_name:
        expire(tables, known)


def _set_traits(tables: RouteTables, group: BrokerGroup, registration: Registration) -> None:
    traits = (bool(registration.enable_acting_master), registration.zone_name)
    if traits != (group.enable_acting_master, group.zone_name):
        group.enable_acting_master, group.zone_name = traits
        tables.group_changed(group)


def _while_registered(steps: Steps[None], tables: RouteTables, group: BrokerGroup, broker: LiveBroker) -> Steps[None]:
    for _ in steps:
        yield
        if tables.live.get(broker.address) is not broker or tables.groups.get(group.name) is not group:
            raise InvalidRequestError("the broker left while its topics were registered")


def _take_topics(
    tables: RouteTables, group: BrokerGroup, registration: Registration, host: str, *, changed: bool
) -> Steps[None]:
    topics = registration.topics
    is_master = registration.broker_id == MASTER_ID
    withholds = not is_master and group.enable_acting_master
    if tables.delete_with_registration and not registration.mappings and len(topics) > 1:
        for topic in group.queues.keys() - topics.keys():
            yield
            if topic in group.queues:  # a tool may have deleted it since
                tables.drop_queue(group, topic)
    for topic in topics if changed else topics.keys() - group.queues.keys():
        yield
        read_only = withholds or group.name in tables.wiped  # asked each time: a tool may come between
        queue = _queue_data(group.name, topics[topic], read_only=read_only)
        if group.queues.get(topic) != queue:
            tables.put_queue(group, topic, queue, host)
        if withholds and topics[topic].perm & PERM_WRITE:
            group.withheld.add(topic)
        else:
            group.withheld.discard(topic)
    if is_master:
        yield from _give_writes_back(tables, group)
    if changed:
        for topic in registration.mappings.keys() & group.queues.keys():
            yield
            if topic in group.queues:
                group.mappings[topic] = registration.mappings[topic]
                tables.topic_changed(topic)


def _give_writes_back(tables: RouteTables, group: BrokerGroup) -> Steps[None]:
    """To the topics that this master does not register."""
    for topic in list(group.withheld):
        yield
        if topic in group.withheld and group.name not in tables.wiped:  # a tool may have asked since
            tables.give_writes_back(group, topic)


def _queue_data(broker_name: str, topic: TopicConfig, *, read_only: bool) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        read_queue_nums=topic.read_queue_nums,
        write_queue_nums=topic.write_queue_nums,
        perm=topic.perm & ~PERM_WRITE if read_only else topic.perm,
        topic_sys_flag=topic.topic_sys_flag,
    )


def _min_id_change(
    group: BrokerGroup, *, offline_broker_addr: str | None = None, ha_broker_addr: str | None = None
) -> MinBrokerIdChange:
    """Which brokers to notify: all of them if one has left or there is only one, else all but the new smallest."""
    smallest = group.min_id
    all_of_them = offline_broker_addr is not None or len(group.addresses) == 1
    return MinBrokerIdChange(
        broker_name=group.name,
        min_broker_id=smallest,
        min_broker_addr=group.addresses[smallest],
        offline_broker_addr=offline_broker_addr,
        ha_broker_addr=ha_broker_addr,
        recipients=tuple(
            address for broker_id, address in sorted(group.addresses.items()) if all_of_them or broker_id != smallest
        ),
    )
