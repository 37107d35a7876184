"""How brokers leave: by their word, with their connection, by silence; and what supportActingMaster makes of it."""

import msgspec
import pytest

from rocketmq_formats.remoting.nameserver import TopicRouteData
from rocketmq_namesrv.domain import queries, routes
from rocketmq_namesrv.domain.route_answers import RouteAnswers
from rocketmq_namesrv.domain.tables import RouteTables
from tests.namesrv.route_kit import A, B, C, connection_closed, perms, register, topics


def addresses(known: RouteTables, topic: str, *, acting: bool = False) -> dict[int, str]:
    """The route that clients get for the one group of `topic`."""
    route = queries.route(known, topic, acting_master=acting)
    assert route is not None
    (data,) = route.broker_datas
    return dict(data.broker_addrs)


class TestUnregister:
    def test_the_last_address_takes_name_cluster_and_topics(self) -> None:
        known = RouteTables()
        register(known)
        register(known, B, name="h", table=topics("U", "V"))
        ended = routes.unregister(known, broker_name="g", address=A)
        assert ended.known
        assert set(known.groups) == {"h"}
        assert known.clusters == {"c": {"h"}}
        assert {topic: set(queues) for topic, queues in known.topics.items()} == {"U": {"h"}, "V": {"h"}}

    def test_what_left_under_an_old_address_takes_nothing_from_the_new_one(self) -> None:
        """A pod that came back with another address, and the late word of the one before."""
        known = RouteTables()
        register(known, A)
        register(known, B)
        routes.unregister(known, broker_name="g", address=A)
        assert addresses(known, "T") == {0: B}

    def test_an_unknown_one_changes_nothing(self) -> None:
        known = RouteTables()
        register(known)
        assert not routes.unregister(known, broker_name="nobody", address=A + "0").known
        assert not routes.unregister(known, broker_name="g", address=B).known
        assert known.groups["g"].addresses == {0: A}

    def test_write_permission_goes_with_the_master_if_a_slave_may_act(self) -> None:
        known = RouteTables()
        register(known, acting=True)
        register(known, B, 1, acting=True)
        routes.unregister(known, broker_name="g", address=A)
        assert perms(known, "T") == {"g": 4}

    def test_write_permission_comes_back_with_the_master(self) -> None:
        known = RouteTables()
        register(known, acting=True)
        register(known, B, 1, acting=True)
        routes.unregister(known, broker_name="g", address=A)
        register(known, acting=True)
        assert perms(known, "T") == {"g": 6}

    def test_and_stays_if_not(self) -> None:
        known = RouteTables()
        register(known)
        register(known, B, 1)
        routes.unregister(known, broker_name="g", address=A)
        assert perms(known, "T") == {"g": 6}

    def test_the_smallest_id_that_left_is_sent_to_all(self) -> None:
        known = RouteTables()
        for address, broker_id in ((A, 0), (B, 1), (C, 2)):
            register(known, address, broker_id, acting=True)
        change = routes.unregister(known, broker_name="g", address=A).change
        assert change is not None
        assert (change.min_broker_id, change.offline_broker_addr, change.recipients) == (1, A, (B, C))
        assert routes.unregister(known, broker_name="g", address=C).change is None

    def test_without_acting_master_no_broker_is_notified(self) -> None:
        known = RouteTables()
        register(known)
        register(known, B, 1)
        assert routes.unregister(known, broker_name="g", address=A).change is None


class TestConnectionsAndSilence:
    def test_all_brokers_of_a_connection_end_with_it(self) -> None:
        known = RouteTables()
        register(known, A, over=5)
        register(known, B, name="h", over=5)
        register(known, C, name="i", over=6)
        assert {ended.address for ended in connection_closed(known, 5)} == {A, B}
        assert set(known.groups) == {"i"}

    def test_an_older_connection_of_a_broker_does_not_count(self) -> None:
        known = RouteTables()
        register(known, over=5)
        register(known, over=6)
        assert connection_closed(known, 5) == ()
        assert set(known.groups) == {"g"}

    def test_one_whose_id_was_taken_ends_too(self) -> None:
        known = RouteTables()
        register(known, A, over=5)
        register(known, B, over=6)
        assert [ended.address for ended in connection_closed(known, 5)] == [A]
        assert len(known.live) == 1
        assert known.groups["g"].addresses == {0: B}

    def test_silence_counts_from_the_last_word(self) -> None:
        known = RouteTables()
        register(known, now=100.0, timeout=10.0)
        known.live.refresh("c", A, 105.0)
        assert known.live.expired(115.0) == ()
        (silent,) = known.live.expired(115.1)
        routes.expire(known, silent)
        assert (known.groups, len(known.live)) == ({}, 0)

    def test_a_request_of_a_stranger_makes_no_broker_alive(self) -> None:
        known = RouteTables()
        known.live.refresh("c", A, 105.0)
        assert len(known.live) == 0


class TestActingMaster:
    def test_the_smallest_id_is_presented_as_0(self) -> None:
        known = RouteTables()
        register(known, acting=True)
        register(known, B, 2, acting=True)
        register(known, C, 3, acting=True)
        assert addresses(known, "T", acting=True) == {0: A, 2: B, 3: C}
        routes.unregister(known, broker_name="g", address=A)
        assert addresses(known, "T", acting=True) == {0: B, 3: C}
        assert addresses(known, "T", acting=False) == {2: B, 3: C}
        assert queries.cluster_info(known).broker_addr_table["g"].broker_addrs == {2: B, 3: C}

    def test_not_in_the_topic_by_which_brokers_find_each_other(self) -> None:
        known = RouteTables()
        register(known, B, 2, acting=True, table=topics("rmq_sys_SYNC_BROKER_MEMBER_g", "T"))
        assert addresses(known, "rmq_sys_SYNC_BROKER_MEMBER_g", acting=True) == {2: B}

    def test_not_while_the_topic_is_writable(self) -> None:
        known = RouteTables()
        register(known, B, 2, acting=True)
        known.add_write_permission("g")
        assert addresses(known, "T", acting=True) == {2: B}

    def test_not_for_a_group_that_does_not_want_it(self) -> None:
        known = RouteTables()
        register(known, B, 2, table=topics("T", "U", perm=4))
        assert addresses(known, "T", acting=True) == {2: B}


def lose_the_master(known: RouteTables) -> None:
    """B acts for A: T is younger than B's copy of A's topics, which is 10 s old in official brokers."""
    register(known, A, acting=True, table=topics("S", "T", "U") | topics("fixed", perm=4))
    register(known, B, 2, acting=True, table=topics("S", "U"))
    routes.unregister(known, broker_name="g", address=A)
    register(known, B, 2, acting=True, table=topics("S", "U"))
    assert perms(known, "T") == {"g": 4}


class TestWritesWithANewMaster:
    """The name server took the write permission off because there was no master: it must give it back."""

    def test_to_a_topic_that_it_does_not_know(self) -> None:
        known = RouteTables()
        lose_the_master(known)
        register(known, B, acting=True, table=topics("S", "U"), version=(2, 2))
        assert (perms(known, "S"), perms(known, "T"), perms(known, "U")) == ({"g": 6}, {"g": 6}, {"g": 6})

    def test_to_topics_of_a_later_part_of_its_registration(self) -> None:
        """enableSplitRegistration: each part comes with the same version."""
        known = RouteTables()
        register(known, A, acting=True, table=topics("S", "T", "U"))
        register(known, C, 1, acting=True, table=topics("S", "U"))
        routes.unregister(known, broker_name="g", address=A)
        register(known, B, acting=True, table=topics("S", "U"), version=(2, 2))
        register(known, B, acting=True, table=topics("T"), version=(2, 2))
        assert perms(known, "T") == {"g": 6}

    def test_to_a_topic_that_the_acting_slave_had_and_it_has_not(self) -> None:
        known = RouteTables()
        lose_the_master(known)
        register(known, C, acting=True, table=topics("U", "V"), version=(2, 2))
        assert perms(known, "S") == {"g": 6}

    def test_not_to_a_topic_that_was_read_only_before(self) -> None:
        known = RouteTables()
        lose_the_master(known)
        register(known, B, acting=True, table=topics("S", "U"), version=(2, 2))
        assert perms(known, "fixed") == {"g": 4}

    def test_not_to_one_that_is_read_only_since(self) -> None:
        known = RouteTables()
        lose_the_master(known)
        register(known, B, 2, acting=True, table=topics("S", perm=4) | topics("U"), version=(0, 2))
        known.register_topic("T", [msgspec.structs.replace(known.topics["T"]["g"], perm=4)], "a")
        register(known, C, acting=True, table=topics("U", "V"), version=(2, 2))
        assert (perms(known, "S"), perms(known, "T")) == ({"g": 4}, {"g": 4})

    def test_not_while_a_tool_keeps_it_off(self) -> None:
        known = RouteTables()
        lose_the_master(known)
        known.wipe_write_permission("g")
        register(known, B, acting=True, table=topics("S", "U"), version=(2, 2))
        assert perms(known, "T") == {"g": 4}
        known.add_write_permission("g")
        assert perms(known, "T") == {"g": 6}

    def test_not_of_a_slave(self) -> None:
        known = RouteTables()
        lose_the_master(known)
        register(known, C, 1, acting=True, table=topics("S", "U"))
        assert perms(known, "T") == {"g": 4}

    def test_encoded_routes_show_it(self) -> None:
        answers = RouteAnswers(lambda topic: queries.route(known, topic, acting_master=True))
        known = RouteTables(on_change=answers.forget)
        lose_the_master(known)
        before = answers.get("T", standard=True)
        register(known, B, acting=True, table=topics("S", "U"), version=(2, 2))
        assert answers.get("T", standard=True) != before


class TestPermissionsAndTopics:
    def test_add_sets_read_and_write_exactly(self) -> None:
        known = RouteTables()
        register(known, table=topics("T", "U", perm=7))
        assert known.wipe_write_permission("g") == 2
        assert perms(known, "T") == {"g": 5}
        assert known.add_write_permission("g") == 2
        assert perms(known, "T") == {"g": 6}
        assert known.wipe_write_permission("nobody") == 0

    def test_delete_in_one_cluster_or_everywhere(self) -> None:
        known = RouteTables()
        register(known)
        register(known, B, name="h", cluster="d")
        known.delete_topic("T", "d")
        assert set(known.topics["T"]) == {"g"}
        known.delete_topic("T", "unknown")
        assert set(known.topics["T"]) == {"g"}
        known.delete_topic("T")
        assert set(known.topics) == {"U"}
        assert known.queue_datas == 2


class Kept(RouteAnswers):
    """Encoded routes over tables of one group with three topics; counts what is made from them."""

    def __init__(self) -> None:
        super().__init__(self._make, max_kept=2)
        self.made: list[str] = []
        self.tables = RouteTables(on_change=self.forget)
        register(self.tables, table=topics("T", "U", "V"))

    def _make(self, topic: str) -> TopicRouteData | None:
        self.made.append(topic)
        return queries.route(self.tables, topic, acting_master=False)


class TestRouteAnswers:
    def test_encoded_once_until_something_changes(self) -> None:
        kept = Kept()
        first = kept.get("T", standard=True)
        assert kept.get("T", standard=True) is first
        register(kept.tables, now=30.0, table=topics("T", "U", "V"))  # what brokers say every 30 s
        assert kept.get("T", standard=True) is first
        register(kept.tables, B, 1)
        assert kept.get("T", standard=True) != first
        assert kept.made == ["T", "T"]

    @pytest.mark.parametrize("what", ["wipe", "leave", "zone", "filter", "queues"])
    def test_every_change_is_seen(self, what: str) -> None:
        kept = Kept()
        first = kept.get("T", standard=False)
        match what:
            case "wipe":
                kept.tables.wipe_write_permission("g")
            case "leave":
                connection_closed(kept.tables, 1)
            case "zone":
                register(kept.tables, zone_name="z")
            case "filter":
                register(kept.tables, filter_servers=("f:1",))
            case _:
                register(kept.tables, table=topics("T", "U", queues=7), version=(0, 2))
        assert kept.get("T", standard=False) != first

    def test_the_oldest_goes_when_too_many_are_kept(self) -> None:
        kept = Kept()
        for topic in ("T", "U", "V", "T"):
            kept.get(topic, standard=True)
        assert kept.made == ["T", "U", "V", "T"]

    def test_an_unknown_topic_is_not_kept(self) -> None:
        kept = Kept()
        assert kept.get("N", standard=True) is None
        register(kept.tables, table=topics("T", "N"), version=(0, 2))
        assert kept.get("N", standard=True) is not None
