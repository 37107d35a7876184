"""What the garbage collector looks at, which holds the event loop meanwhile."""

import gc
import subprocess
import sys

import pytest

from rocketmq_controller.domain.model import BrokerGroup, BrokerId, MasterEpoch, Replica, SyncStateSetEpoch
from rocketmq_controller.log import event_codec
from rocketmq_formats.remoting.client import MessageQueue
from rocketmq_formats.topics import SubscriptionGroupConfig, TopicConfig

GROUPS = 500


def group(name: str) -> BrokerGroup:
    replicas = {BrokerId(number): Replica(BrokerId(number), f"10.0.0.{number}:10911", name) for number in (1, 2, 3)}
    return BrokerGroup(
        "c", name, BrokerId(4), replicas, BrokerId(1), MasterEpoch(1), frozenset(replicas), SyncStateSetEpoch(1)
    )


def test_a_controllers_groups_are_next_to_nothing_for_it() -> None:
    names = [f"broker-{number}" for number in range(GROUPS)]
    snapshot = event_codec.encode_snapshot({name: group(name) for name in names})
    gc.collect()
    before = len(gc.get_objects())
    state = event_codec.decode_snapshot(snapshot)
    assert len(gc.get_objects()) - before < GROUPS + 50, "a set for each group and nothing else"
    assert len(state) == GROUPS


@pytest.mark.parametrize(
    "value",
    [
        TopicConfig(topic_name="T"),
        SubscriptionGroupConfig(group_name="G"),
        {"T": TopicConfig(attributes={"a": "b"})},
        MessageQueue(topic="T", broker_name="b", queue_id=1),
    ],
    ids=["topic", "group", "table", "locked queue"],
)
def test_a_brokers_tables_are_nothing_for_it(value: object) -> None:
    assert not gc.is_tracked(value)


def test_objects_made_at_the_start_are_not_collected_again() -> None:
    code = (
        "import gc, rocketmq_controller.__main__ as main; main.freeze_startup_objects(); "
        "assert gc.get_freeze_count() > 10_000; assert len(gc.get_objects()) < 100"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
