"""The tables behind the routes - broker names, clusters, topics - and the only code that keeps them consistent.

Pure. `routes` registers and unregisters brokers with it, the shell calls what tools ask for, `queries` reads.
`route_answers` keeps encoded answers and is notified of each topic whose route may have changed.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from rocketmq_formats.remoting.nameserver import MASTER_ID, QueueData, TopicQueueMappingInfo
from rocketmq_formats.shares import Shares, why_not
from rocketmq_formats.topics import PERM_READ, PERM_WRITE
from rocketmq_namesrv.domain.liveness import LiveTable
from rocketmq_namesrv.domain.model import MAX_NAME, InvalidRequestError, Limits, TableFullError


class BrokerGroup:
    """All addresses of one broker name, and the queues it has of each topic."""

    __slots__ = (
        "addresses",
        "cluster",
        "enable_acting_master",
        "host",
        "mappings",
        "name",
        "others",
        "queues",
        "withheld",
        "zone_name",
    )

    def __init__(self, name: str, cluster: str, host: str) -> None:
        self.name = name
        self.host = host
        """Of the first registration: the name and its topics are of this host's share."""
        self.others: dict[str, str] = {}
        """The hosts that put the other topics."""
        self.cluster = cluster
        """Of the first registration, as in Java."""
        self.addresses: dict[int, str] = {}
        self.enable_acting_master = False
        self.zone_name: str | None = None
        self.queues: dict[str, QueueData] = {}
        self.mappings: dict[str, TopicQueueMappingInfo] = {}
        """Of static topics among them."""
        self.withheld: set[str] = set()
        """Topics that are read-only because the group has no master; they are written to again when it has one."""

    def host_of(self, topic: str) -> str:
        """The host that put the topic here."""
        return self.others.get(topic, self.host)

    @property
    def min_id(self) -> int:
        """The smallest id; 0 without addresses."""
        return min(self.addresses, default=0)


class RouteTables:
    """The name server's knowledge. `routes` and the methods below write it; `queries` reads the fields."""

    def __init__(
        self,
        *,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        on_change: Callable[[str], None] = lambda _: None,
        delete_with_registration: bool = False,
    ) -> None:
        """`on_change` is called with each topic whose route may have changed.

        `delete_with_registration`: topics that a master does not register any more are taken off it.
        """
        self.limits = limits
        self.delete_with_registration = delete_with_registration
        self.live = LiveTable()
        self.groups: dict[str, BrokerGroup] = {}
        self.clusters: dict[str, set[str]] = {}
        self.topics: dict[str, dict[str, QueueData]] = {}
        """By broker name, the one that had it first at the front: the topic is of the share of that one's host."""
        self._name_shares = Shares(limits.brokers, "broker names")
        self._topic_shares = Shares(limits.topics, "topics")
        self._pair_shares = Shares(limits.queue_datas, "pairs of topic and broker")
        self.topic_changed = on_change
        self.wiped: frozenset[str] = frozenset()
        """Broker names whose topics are not written to until a tool says otherwise, whatever they register."""

    @property
    def queue_datas(self) -> int:
        """Pairs of topic and broker name."""
        return self._pair_shares.total

    @property
    def shares(self) -> dict[str, Mapping[str, int]]:
        """What each host has, by what it is."""
        return {one.what: one.by_host for one in (self._name_shares, self._topic_shares, self._pair_shares)}

    # permissions and topics, for tools

    def wipe_write_permission(self, broker_name: str) -> int:
        """Take write permission off all topics of a broker name; how many it has.

        It stays off, unlike in Java, where the next changed registration, as after any new topic, brings it back: a
        broker that an administrator drains must not get sends again by itself.
        """
        if broker_name in self.groups:
            self.wiped |= {broker_name}
        return self.set_permissions(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        """Set all topics of a broker name to read and write, exactly; how many it has."""
        self.wiped -= {broker_name}
        if broker_name in self.groups:
            self.groups[broker_name].withheld.clear()
        return self.set_permissions(broker_name, lambda _: PERM_READ | PERM_WRITE)

    def register_topic(self, topic: str, queues: Iterable[QueueData], host: str) -> bool:
        """Add queues of a topic by hand (217), from `host`; False, and nothing done, if one names an unknown broker.

        Raises:
            InvalidRequestError: the topic's name is too long.
            TableFullError: one of the limits, or the host's share, would be exceeded.
        """
        wanted = {queue.broker_name: queue for queue in queues}
        if not wanted.keys() <= self.groups.keys():
            return False
        self.check_topics([topic])
        new = wanted.keys() - self.topics.get(topic, {}).keys()
        self.check_room(host, topics=int(topic not in self.topics), pairs=len(new))
        for name, queue in wanted.items():
            perm = queue.perm & ~PERM_WRITE if name in self.wiped else queue.perm
            self.put_queue(self.groups[name], topic, msgspec.structs.replace(queue, perm=perm), host)
        return True

    def delete_topic(self, topic: str, cluster_name: str | None = None) -> None:
        """Take a topic off the brokers of a cluster, or off all."""
        names = list(self.topics.get(topic, ()))
        if cluster_name:
            of_cluster = self.clusters.get(cluster_name, set())
            names = [name for name in names if name in of_cluster]
        for name in names:
            self.drop_queue(self.groups[name], topic)

    # for `routes`

    def check_topics(self, topics: Iterable[str]) -> None:
        for topic in topics:
            if not 0 < len(topic) <= MAX_NAME:
                raise InvalidRequestError(f"topic name of {len(topic)} characters: 1 to {MAX_NAME} are taken")

    def check_name(self, host: str) -> None:
        """Whether a broker name of `host` finds room."""
        _check(self._name_shares.why_not(host))

    def check_member(self, group: BrokerGroup, host: str) -> None:
        """Whether another address of `group` that `host` registers finds room."""
        known = [self.live.get(address) for address in group.addresses.values()]
        of_host = sum(broker is not None and broker.host == host for broker in known)
        what = f"addresses of {group.name}"
        _check(why_not(self.limits.members, what, total=len(known), of_host=of_host))

    def check_room(self, host: str, *, topics: int, pairs: int) -> None:
        _check(self._topic_shares.why_not(host, topics))
        _check(self._pair_shares.why_not(host, pairs))

    def add_group(self, group: BrokerGroup) -> None:
        self.groups[group.name] = group
        self._name_shares.put(group.host)

    def put_queue(self, group: BrokerGroup, topic: str, queue: QueueData, host: str) -> None:
        """`host`: who says so; the share of another one has it if it was there."""
        if topic not in group.queues:
            self._pair_shares.put(host)
            if host != group.host:
                group.others[topic] = host
            if topic not in self.topics:
                self._topic_shares.put(host)
        group.withheld.discard(topic)
        self._replace_queue(group, topic, queue)

    def drop_queue(self, group: BrokerGroup, topic: str) -> None:
        del group.queues[topic]
        group.withheld.discard(topic)
        group.mappings.pop(topic, None)
        host = group.host_of(topic)
        group.others.pop(topic, None)
        self._pair_shares.remove(host)
        brokers = self.topics[topic]
        was_first = next(iter(brokers)) == group.name
        del brokers[group.name]
        if was_first:
            self._topic_shares.remove(host)
            if brokers:
                self._topic_shares.put(self.groups[next(iter(brokers))].host_of(topic))
        if not brokers:
            del self.topics[topic]
        self.topic_changed(topic)

    def withhold_writes(self, group: BrokerGroup, topic: str) -> None:
        """Until the group has a master."""
        queue = group.queues[topic]
        group.withheld.add(topic)
        self._replace_queue(group, topic, msgspec.structs.replace(queue, perm=queue.perm & ~PERM_WRITE))

    def give_writes_back(self, group: BrokerGroup, topic: str) -> None:
        """The group has a master."""
        queue = group.queues[topic]
        group.withheld.discard(topic)
        self._replace_queue(group, topic, msgspec.structs.replace(queue, perm=queue.perm | PERM_WRITE))

    def _replace_queue(self, group: BrokerGroup, topic: str, queue: QueueData) -> None:
        group.queues[topic] = queue
        self.topics.setdefault(topic, {})[group.name] = queue
        self.topic_changed(topic)

    def set_permissions(self, broker_name: str, change: Callable[[int], int]) -> int:
        group = self.groups.get(broker_name)
        if group is None:
            return 0
        for topic, queue in group.queues.items():
            self._replace_queue(group, topic, msgspec.structs.replace(queue, perm=change(queue.perm)))
        return len(group.queues)

    def remove_ids(self, group: BrokerGroup, ids: Iterable[int]) -> None:
        for broker_id in ids:
            del group.addresses[broker_id]
        if group.addresses:
            if group.enable_acting_master and MASTER_ID not in group.addresses:
                for topic in [topic for topic, queue in group.queues.items() if queue.perm & PERM_WRITE]:
                    self.withhold_writes(group, topic)
            self.group_changed(group)
            return
        for topic in list(group.queues):
            self.drop_queue(group, topic)
        del self.groups[group.name]
        self._name_shares.remove(group.host)
        for cluster, names in list(self.clusters.items()):
            names.discard(group.name)
            if not names:
                del self.clusters[cluster]

    def group_changed(self, group: BrokerGroup) -> None:
        for topic in group.queues:
            self.topic_changed(topic)


def _check(reason: str | None) -> None:
    if reason is not None:
        raise TableFullError(reason)
