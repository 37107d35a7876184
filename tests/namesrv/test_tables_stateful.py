"""Any sequence of registrations, endings and tools' requests leaves tables that agree, and no stale answer."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rocketmq_formats.remoting.nameserver import MASTER_ID, TopicRouteData, encode_route
from rocketmq_formats.topics import PERM_WRITE
from rocketmq_namesrv.domain import queries, routes
from rocketmq_namesrv.domain.model import TableRefusedError
from rocketmq_namesrv.domain.route_answers import RouteAnswers
from rocketmq_namesrv.domain.tables import RouteTables
from tests.namesrv.route_kit import connection_closed, register, topics

TOPICS = ("T", "U", "V", "rmq_sys_SYNC_BROKER_MEMBER_g")
names = st.sampled_from(["g", "h"])
clusters = st.sampled_from(["c", "d"])
addresses = st.sampled_from(["1:1", "2:2", "3:3", "4:4"])
connections = st.integers(1, 4)


class Tables(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.known = RouteTables(on_change=lambda topic: self.answers.forget(topic))  # noqa: PLW0108 - made below
        self.answers = RouteAnswers(self._route)
        self.now = 0.0

    def _route(self, topic: str) -> TopicRouteData | None:
        return queries.route(self.known, topic, acting_master=True)

    @rule(
        name=names,
        cluster=clusters,
        address=addresses,
        broker_id=st.integers(0, 3),
        version=st.tuples(st.integers(0, 1), st.integers(0, 2)),
        table=st.sets(st.sampled_from(TOPICS)),
        queues=st.integers(1, 2),
        acting=st.sampled_from([None, False, True]),
        zone=st.sampled_from([None, "z"]),
        filters=st.sampled_from([(), ("f:1",)]),
        over=connections,
        host=st.sampled_from(["a", "b"]),
        deletes=st.booleans(),
    )
    def register(self, name: str, table: set[str], queues: int, zone: str | None, over: int, **more: object) -> None:
        self.known.delete_with_registration = bool(more.pop("deletes"))
        more["filter_servers"] = more.pop("filters")
        try:
            register(
                self.known,
                name=name,
                table=topics(*sorted(table), queues=queues),
                zone_name=zone,
                now=self.now,
                over=over,
                **more,
            )
        except TableRefusedError:
            assert len(table) == 1

    @rule(name=names, address=addresses)
    def unregister(self, name: str, address: str) -> None:
        routes.unregister(self.known, broker_name=name, address=address)

    @rule(connection=connections)
    def close(self, connection: int) -> None:
        connection_closed(self.known, connection)
        assert self.known.live.of_connection(connection) == ()

    @rule(seconds=st.floats(0, 100))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for broker in self.known.live.expired(self.now):
            routes.expire(self.known, broker)
        assert self.known.live.expired(self.now) == ()

    @rule(name=names, wipe=st.booleans())
    def permissions(self, name: str, wipe: bool) -> None:
        (self.known.wipe_write_permission if wipe else self.known.add_write_permission)(name)

    @rule(topic=st.sampled_from(TOPICS), cluster=st.one_of(st.none(), clusters))
    def delete(self, topic: str, cluster: str | None) -> None:
        self.known.delete_topic(topic, cluster)

    @invariant()
    def both_indexes_agree(self) -> None:
        by_topic = {
            (topic, name): queue for topic, queues in self.known.topics.items() for name, queue in queues.items()
        }
        by_group = {
            (topic, name): queue for name, group in self.known.groups.items() for topic, queue in group.queues.items()
        }
        assert by_topic == by_group
        assert self.known.queue_datas == len(by_topic)
        assert all(group.others.keys() <= group.queues.keys() for group in self.known.groups.values())
        assert all(self.known.topics.values())

    @invariant()
    def shares_are_what_is_there(self) -> None:
        assert self.known.shares == {
            "broker names": Counter(group.host for group in self.known.groups.values()),
            "topics": Counter(self.known.groups[next(iter(its))].host_of(t) for t, its in self.known.topics.items()),
            "pairs of topic and broker": Counter(
                group.host_of(topic) for group in self.known.groups.values() for topic in group.queues
            ),
        }

    @invariant()
    def nobody_is_left_behind(self) -> None:
        for group in self.known.groups.values():
            assert group.addresses
            assert len(set(group.addresses.values())) == len(group.addresses), "one address, one id"
            assert all(self.known.live.get(address) for address in group.addresses.values())
        assert all(self.known.clusters.values())
        assert set().union(*self.known.clusters.values()) == set(self.known.groups)

    @invariant()
    def only_a_group_without_a_master_or_a_tool_withholds_writes(self) -> None:
        for group in self.known.groups.values():
            assert group.withheld <= group.queues.keys()
            assert not any(group.queues[topic].perm & PERM_WRITE for topic in group.withheld)
            assert not group.withheld or MASTER_ID not in group.addresses or group.name in self.known.wiped

    @invariant()
    def answers_are_never_stale(self) -> None:
        for topic in TOPICS:
            for standard in (False, True):
                fresh = self._route(topic)
                body = None if fresh is None else encode_route(fresh, standard=standard)
                assert self.answers.get(topic, standard=standard) == body


Tables.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
test_tables = Tables.TestCase
