"""The numbered steps of a registration in docs/protocol.md, one test per sentence; what finds no room."""

import contextlib

import pytest

from rocketmq_formats.remoting.nameserver import QueueData, TopicQueueMappingInfo
from rocketmq_formats.topics import DataVersion
from rocketmq_namesrv.domain import queries, routes
from rocketmq_namesrv.domain.model import (
    InvalidRequestError,
    Limits,
    NotRegisteredError,
    Registered,
    TableFullError,
)
from rocketmq_namesrv.settings import NameServerSettings
from tests.namesrv.route_kit import A, B, C, perms, register, tables, topics


class TestNumberedSemantics:
    def test_1_cluster_and_name_are_created(self) -> None:
        known = tables()
        assert register(known, zone_name="z", acting=True).first
        group = known.groups["g"]
        assert (group.cluster, group.zone_name, group.enable_acting_master) == ("c", "z", True)
        assert known.clusters == {"c": {"g"}}

    def test_1_traits_follow_the_latest_registration(self) -> None:
        known = tables()
        register(known, zone_name="z", acting=True)
        register(known, B, 1, acting=None)
        assert (known.groups["g"].zone_name, known.groups["g"].enable_acting_master) == (None, False)

    def test_2_and_10_a_smaller_id_is_sent_to_the_others(self) -> None:
        known = tables()
        assert register(known, A, 2).change is None
        change = register(known, B, 1).change
        assert change is not None
        assert (change.min_broker_id, change.min_broker_addr, change.recipients) == (1, B, (A,))
        assert (change.ha_broker_addr, change.offline_broker_addr) == ("10.0.0.2:10912", None)
        assert register(known, C, 3).change is None

    def test_10_the_only_member_is_notified_of_itself(self) -> None:
        known = tables()
        register(known, A, 2)
        change = register(known, A, 0).change
        assert change is not None
        assert change.recipients == (A,)

    def test_3_an_address_has_one_id(self) -> None:
        known = tables()
        register(known, A, 2)
        register(known, A, 0)
        assert known.groups["g"].addresses == {0: A}

    def test_4_a_greater_state_version_keeps_the_id(self) -> None:
        known = tables()
        register(known, A, version=(5, 1))
        register(known, B, 1, version=(5, 1))
        answer = register(known, B, 0, version=(4, 9), over=2)
        assert answer == Registered(stale=A)
        assert known.groups["g"].addresses == {0: A}, "the stale one has lost its old id"
        assert known.live.get(B) is None

    @pytest.mark.parametrize("state", [5, 6])
    def test_4_equal_or_lower_loses_to_the_newcomer(self, state: int) -> None:
        known = tables()
        register(known, A, version=(5, 1))
        assert register(known, B, version=(state, 1)).stale is None
        assert known.groups["g"].addresses == {0: B}

    def test_4_a_holder_that_is_not_alive_does_not_count(self) -> None:
        known = tables()
        register(known, A, version=(5, 1))
        known.live.remove(A)
        assert register(known, B, version=(4, 1)).stale is None

    def test_5_one_topic_before_all_topics_is_refused_and_leaves_nothing(self) -> None:
        known = tables()
        with pytest.raises(NotRegisteredError, match="register broker failed"):
            register(known, table=topics("T"))
        assert (known.groups, known.clusters, known.topics, len(known.live)) == ({}, {}, {}, 0)

    def test_5_one_topic_after_all_topics_is_taken(self) -> None:
        known = tables()
        register(known)
        assert not register(known, table=topics("T", queues=9), version=(0, 2)).first
        assert known.topics["T"]["g"].write_queue_nums == 9
        assert set(known.topics) == {"T", "U"}

    def test_6_no_topics_at_all_is_a_registration(self) -> None:
        known = tables()
        assert register(known, table={}).first
        assert known.topics == {}

    def test_7_equal_version_brings_unknown_topics_only(self) -> None:
        known = tables()
        register(known)
        register(known, table=topics("T", "V", queues=9))
        assert known.topics["T"]["g"].read_queue_nums == 4
        assert known.topics["V"]["g"].read_queue_nums == 9

    def test_7_changed_version_counts_for_all_topics_but_takes_none_away(self) -> None:
        known = tables()
        register(known)
        register(known, table=topics("T", "V", queues=9), version=(0, 2))
        assert known.topics["T"]["g"].read_queue_nums == 9
        assert "U" in known.topics

    def test_7_a_slave_beside_a_master_brings_no_topics(self) -> None:
        known = tables()
        register(known)
        register(known, B, 1, table=topics("T", "S", queues=9), version=(0, 7))
        assert "S" not in known.topics
        assert known.topics["T"]["g"].read_queue_nums == 4

    @pytest.mark.parametrize(("acting", "perm"), [(True, 4), (False, 6)])
    def test_7_a_prime_slave_brings_topics_read_only_if_it_may_act(self, acting: bool, perm: int) -> None:
        known = tables()
        register(known, A, 1, acting=acting)
        assert perms(known, "T") == {"g": perm}

    def test_7_a_master_that_returns_is_written_to_again(self) -> None:
        known = tables()
        register(known, A, 0, acting=True)
        routes.unregister(known, broker_name="g", address=A)
        register(known, B, 1, acting=True)
        assert perms(known, "T") == {"g": 4}
        register(known, A, 0, acting=True)
        assert perms(known, "T") == {"g": 6}

    def test_7_an_old_slave_alone_brings_no_topics(self) -> None:
        known = tables()
        register(known, A, 1, acting=None)
        assert known.topics == {}

    def test_7_topics_left_out_go_with_delete_topic_with_broker_registration(self) -> None:
        known = tables(delete_with_registration=True)
        register(known, table=topics("T", "U", "V"))
        register(known, table=topics("T", "U"))
        assert set(known.topics) == {"T", "U"}

    def test_7_an_incremental_registration_never_takes_topics_away(self) -> None:
        known = tables(delete_with_registration=True)
        register(known)
        register(known, table=topics("N"), version=(0, 2))
        assert set(known.topics) == {"T", "U", "N"}

    def test_7_static_topics_keep_everything_too(self) -> None:
        known = tables(delete_with_registration=True)
        register(known, table=topics("T", "U", "V"))
        register(known, mappings={"T": TopicQueueMappingInfo(topic="T", bname="g")}, version=(0, 2))
        assert "V" in known.topics
        route = queries.route(known, "T", acting_master=False)
        assert route is not None
        assert route.topic_queue_mapping_by_broker == {"g": TopicQueueMappingInfo(topic="T", bname="g")}

    def test_8_what_is_alive_is_replaced(self) -> None:
        known = tables()
        register(known, now=1.0, over=7, timeout=9.0)
        register(known, now=2.0, over=8, version=(0, 2))
        broker = known.live.get(A)
        assert broker is not None
        assert (broker.last_update, broker.timeout, broker.connection_id) == (2.0, 120.0, 8)
        assert broker.data_version == DataVersion(counter=2)
        assert known.live.of_connection(7) == ()

    def test_9_a_slave_gets_its_master(self) -> None:
        known = tables()
        assert register(known).master_addr is None
        answer = register(known, B, 1)
        assert (answer.master_addr, answer.ha_server_addr) == (A, "10.0.0.1:10912")

    def test_9_not_one_that_is_not_alive(self) -> None:
        known = tables()
        register(known)
        known.live.remove(A)
        answer = register(known, B, 1)
        assert (answer.master_addr, answer.ha_server_addr) == (None, None)


class TestWhatJavaLeavesBehind:
    def test_an_address_under_another_name_leaves_the_first(self) -> None:
        known = tables()
        register(known, A, name="one")
        register(known, A, name="two")
        assert set(known.groups) == {"two"}
        assert set(known.topics["T"]) == {"two"}

    def test_a_name_in_two_clusters_leaves_both_at_its_end(self) -> None:
        known = tables()
        register(known, A, cluster="c1")
        register(known, B, 1, cluster="c2")
        assert known.clusters == {"c1": {"g"}, "c2": {"g"}}
        routes.unregister(known, broker_name="g", address=A)
        routes.unregister(known, broker_name="g", address=B)
        assert (known.clusters, known.topics, known.queue_datas) == ({}, {}, 0)


class TestLimits:
    def test_names(self) -> None:
        known = tables(limits=Limits(brokers=1))
        register(known)
        register(known)
        with pytest.raises(TableFullError):
            register(known, B, name="h")
        assert set(known.groups) == {"g"}

    def test_members(self) -> None:
        known = tables(limits=Limits(members=1))
        register(known)
        with pytest.raises(TableFullError):
            register(known, B, 1)

    def test_topics_of_a_registration_are_taken_all_or_none(self) -> None:
        known = tables(limits=Limits(topics=4))
        register(known)
        with pytest.raises(TableFullError):
            register(known, B, name="h", table=topics("T", "V", "W", "X"), host="b")
        assert set(known.topics) == {"T", "U"}
        register(known, B, name="h", table=topics("T", "V"), host="b")

    def test_pairs(self) -> None:
        known = tables(limits=Limits(queue_datas=5))
        register(known)
        with pytest.raises(TableFullError):
            register(known, B, name="h", table=topics("T", "U", "V", "W"), host="b")

    def test_by_hand(self) -> None:
        known = tables(limits=Limits(topics=4))
        register(known)
        queue = QueueData(broker_name="g", read_queue_nums=1, write_queue_nums=1, perm=6)
        with pytest.raises(TableFullError):
            known.register_topic("V", [queue], host="a")
        assert known.register_topic("T", [queue], host="a")
        assert known.register_topic("V", [queue], host="b")

    @pytest.mark.parametrize("bad", [{"broker_id": -1}, {"address": ""}, {"table": topics("T", "x" * 1025)}])
    def test_what_no_broker_can_be(self, bad: dict[str, object]) -> None:
        known = tables()
        with pytest.raises(InvalidRequestError):
            register(known, **bad)
        assert known.groups == {}


class TestSharesOfHosts:
    """One host gets at most as much of a table as it leaves to the others."""

    def test_names(self) -> None:
        known = tables(limits=Limits(brokers=4))
        for number in range(2):
            register(known, f"10.6.6.6:{number}", name=f"made up {number}", host="stranger")
        with pytest.raises(TableFullError, match="one host"):
            register(known, "10.6.6.6:3", name="made up 3", host="stranger")
        register(known, A, name="g", host="a")
        register(known, B, name="h", host="b")

    def test_members_of_a_name(self) -> None:
        known = tables(limits=Limits(members=4))
        register(known, A, 0, host="a")
        for broker_id in (7, 8):
            with contextlib.suppress(TableFullError):
                register(known, f"10.6.6.6:{broker_id}", broker_id, host="stranger")
        assert len(known.groups["g"].addresses) == 2
        register(known, B, 1, host="b")

    @pytest.mark.parametrize("limits", [Limits(topics=9), Limits(queue_datas=9)], ids=["topics", "pairs"])
    def test_topics_whoever_has_them_too(self, limits: Limits) -> None:
        """A stranger's topics count to the stranger, also those in an honest group."""
        known = tables(limits=limits)
        register(known, A, host="a")
        queue = QueueData(broker_name="g", read_queue_nums=1, write_queue_nums=1, perm=6)
        known.register_topic("by hand", [queue], host="s")
        register(known, "6:6", name="made up", table=topics("1", "2"), host="s")
        with pytest.raises(TableFullError, match="one host"):
            register(known, "6:7", name="more", table=topics("3", "4", "5"), host="s")
        register(known, A, version=(0, 2), table=topics("T", "U", "V"), host="a")
        assert perms(known, "V") == {"g": 6}

    def test_a_host_alone_has_room_for_many(self) -> None:
        known = tables(limits=NameServerSettings().limits)
        assert known.limits == Limits()
        known.check_room("a", topics=200_000, pairs=2_000_000)
        with pytest.raises(TableFullError, match="one host"):
            known.check_room("a", topics=200_001, pairs=0)

    def test_what_leaves_makes_room(self) -> None:
        known = tables(limits=Limits(brokers=2, topics=4, queue_datas=8))
        for _ in range(3):
            register(known, A, host="a")
            register(known, B, 1, host="b")
            routes.unregister(known, broker_name="g", address=A)
            routes.unregister(known, broker_name="g", address=B)

    def test_a_topic_counts_to_the_next_host_when_the_first_has_left(self) -> None:
        known = tables(limits=Limits(topics=4))
        register(known, A, name="g", host="a")
        register(known, B, name="h", host="b")
        routes.unregister(known, broker_name="g", address=A)
        with pytest.raises(TableFullError, match="one host"):
            register(known, B, name="h", version=(0, 2), table=topics("T", "U", "V"), host="b")
        register(known, A, name="g", table=topics("T", "V"), host="a")
