"""The topic table and its names."""

import pytest

from rocketmq_broker.domain.tables.topics import MAX_TOPICS, TopicTable, forbidden_to_producers, name_problem
from rocketmq_formats.remoting.command import MAX_FRAME
from rocketmq_formats.remoting.registration import (
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    encode_registration,
)
from rocketmq_formats.topics import DataVersion, TopicConfig


def table(*, auto_create: bool = True) -> TopicTable:
    return TopicTable(cluster="C", broker_name="b", auto_create=auto_create, default_queue_nums=8)


@pytest.mark.parametrize("name", ["T", "%RETRY%G", "a|b_c-1", "x" * 127, "%RETRY%" + "g" * 240, "%DLQ%" + "g" * 240])
def test_legal_names(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "ä", "a\n", "x" * 128, "%RETRY%" + "g" * 250, "a.b"])
def test_illegal_names(name: str) -> None:
    assert name_problem(name) is not None


def test_topics_for_the_broker_alone() -> None:
    assert forbidden_to_producers("SCHEDULE_TOPIC_XXXX")
    assert not forbidden_to_producers("BenchmarkTest")
    assert table().is_system("C")
    assert table().is_system("rmq_sys_anything")
    assert not table().is_system("T")


def test_the_topic_by_which_brokers_find_each_other_is_there() -> None:
    topic = table().get("rmq_sys_SYNC_BROKER_MEMBER_b")
    assert topic is not None
    assert (topic.perm & 6, topic.write_queue_nums) == (0, 1)


def test_the_template_is_there_only_for_creating() -> None:
    assert table().get("TBW102") is not None
    assert table(auto_create=False).get("TBW102") is None


def test_a_topic_made_from_a_template_cannot_be_a_template() -> None:
    topics = table()
    made = topics.planned_from_template("T", "TBW102", 4, sys_flag=0)
    assert made is not None
    assert not made.inherited
    assert topics.get("T") is None
    assert topics.put(made, state_version=3, now_ms=7)
    assert topics.planned_from_template("U", "T", 4, sys_flag=0) is None
    assert topics.version == DataVersion(state_version=3, counter=1, timestamp=7)


def test_a_template_from_a_file_does_not_switch_creation_on() -> None:
    topics = table(auto_create=False)
    topics.load(DataVersion(), {"TBW102": TopicConfig(perm=7)})
    assert topics.planned_from_template("T", "TBW102", 4, sys_flag=0) is None


def test_at_least_one_queue() -> None:
    made = table().planned_from_template("T", "TBW102", -5, sys_flag=0)
    assert made is not None
    assert made.write_queue_nums == 1


def test_only_changes_count() -> None:
    topics = table()
    heard: list[int] = []
    topics.on_change(lambda: heard.append(topics.version.counter))
    topic = TopicConfig(topic_name="T")
    assert topics.put(topic, state_version=1, now_ms=1)
    assert not topics.put(topic, state_version=1, now_ms=2)
    assert topics.delete("T", state_version=1, now_ms=3)
    assert not topics.delete("T", state_version=1, now_ms=4)
    assert heard == [1, 2]


def test_a_lower_epoch_makes_no_older_version() -> None:
    """Without controllers a group that had some is in epoch 1."""
    topics = table()
    topics.next_version(7, 1)
    topics.next_version(1, 2)
    assert topics.version == DataVersion(state_version=7, counter=2, timestamp=2)


def test_a_full_table_can_still_be_registered() -> None:
    topics = table()
    number = 0
    while topics.create_plain(f"{number:0127d}", 8, state_version=2**31, now_ms=2**42) is not None:
        number += 1
    assert len(topics.table) == MAX_TOPICS
    wrapper = TopicConfigSerializeWrapper(topic_config_table=topics.table, data_version=topics.version)
    body = encode_registration(RegisterBrokerBody(topic_config_serialize_wrapper=wrapper))
    assert len(body) < MAX_FRAME - 64 * 1024


def test_topics_that_the_keys_make() -> None:
    """As TopicConfigManager.java makes them."""
    topics = TopicTable(
        cluster="C",
        broker_name="b",
        auto_create=True,
        default_queue_nums=8,
        cluster_topic=False,
        broker_topic=False,
        trace_topic="Trace",
    )
    assert [topics.table[name].perm for name in ("C", "b", "Trace", "TBW102")] == [1, 1, 6, 7]
    assert topics.is_system("Trace")
    assert (topics.table["Trace"].read_queue_nums, topics.table["Trace"].write_queue_nums) == (1, 1)
    assert "RMQ_SYS_TRACE_TOPIC" not in table().table


def test_a_new_master_adds_what_its_keys_make_and_changes_nothing_else() -> None:
    topics = table()
    changed = TopicConfig(topic_name="BenchmarkTest", read_queue_nums=1, write_queue_nums=1)
    topics.replace(DataVersion(counter=5), {"BenchmarkTest": changed, "T": TopicConfig(topic_name="T")})
    topics.add_built_in()
    assert {"T", "TBW102", "C", "b"} <= topics.table.keys()
    assert topics.table["BenchmarkTest"] == changed
