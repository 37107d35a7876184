"""`python -m benchmarks.tables`: how long the tables of a broker hold its event loop, at a master and at its slave.

Pure: no sockets, no files; in time of the processor, so that other processes do not count. A request, and a step of a
longer one, may take `TARGET_MS`; each figure is the longest step.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from rocketmq_broker.domain.consuming.locks import QueueLocks
from rocketmq_broker.domain.tables.offsets import ConsumerOffsets
from rocketmq_broker.domain.tables.part_copies import PartCopy
from rocketmq_broker.domain.tables.subscription_groups import MAX_GROUPS, SubscriptionGroups
from rocketmq_broker.tables.changes_body import group_changes_body
from rocketmq_broker.tables.table_copies import PART
from rocketmq_formats.json.bodies import decode_body
from rocketmq_formats.remoting.client import MessageQueue
from rocketmq_formats.table_copies import NOTHING, GroupChanges
from rocketmq_formats.topics import SubscriptionGroupConfig

TARGET_MS: Final = 50.0
GROUPS: Final = MAX_GROUPS
TOPICS: Final = 10_000
FORBIDDEN: Final = 1000


def main() -> int:
    """Exit code 1 where a step takes longer than the target."""
    figures = {name: ms for measure in (copies, deleted_topic, deleted_group) for name, ms in measure()}
    for name, ms in figures.items():
        print(f"{ms:8.1f} ms  {name}")
    missed = [name for name, ms in figures.items() if ms > TARGET_MS]
    for name in missed:
        print(f"missed: {name}")
    return 1 if missed else 0


def copies() -> Iterator[tuple[str, float]]:
    """A slave gets all groups, then one that changed."""
    master, slave = _groups(), _groups()
    for number in range(GROUPS):
        master.put(SubscriptionGroupConfig(group_name=f"group-{number:0100}"))
    at, copy = NOTHING, PartCopy()
    for what in (f"{GROUPS} groups in parts", f"one of {GROUPS} groups"):
        sent, taken, count = 0.0, 0.0, 0
        while at != master.order.changes:
            began = time.thread_time()
            changed = master.order.since(at, PART, begun=copy.begun(at))
            floor = master.order.floor
            copy.sent(at, changed.until, master.order.changes, begins=changed.begins, floor=floor)
            body = group_changes_body(master, changed)
            sent = max(sent, (time.thread_time() - began) * 1000)
            taken = max(taken, _ms(lambda body=body: _take(slave, body)))
            at, count = changed.until, count + 1
        assert slave.table == master.table
        yield f"{what}, at the master ({count} parts)", sent
        yield f"{what}, at the slave", taken
        master.put(SubscriptionGroupConfig(group_name="group-changed"))


def _take(slave: SubscriptionGroups, body: bytes) -> None:
    news = decode_body(GroupChanges, body)
    slave.take_changes(
        news.data_version,
        news.subscription_group_table,
        news.forbidden_table,
        news.removed,
        begins=news.full,
        ends=not news.more,
    )


def deleted_topic() -> Iterator[tuple[str, float]]:
    """Which many groups read, in order, and which is forbidden to some."""
    pairs = [("topic", f"group-{number}") for number in range(GROUPS)]
    master, slave = _offsets(pairs), _offsets(pairs)
    locks = _locks(pairs)
    groups = _groups()
    forbidden = {group: {"topic": 1, "other": 1} for _, group in pairs[:FORBIDDEN]}
    groups.load(groups.version, {group: SubscriptionGroupConfig(group_name=group) for _, group in pairs}, forbidden)

    def delete() -> None:
        master.remove(topics={"topic"})
        master.forget_pulls(topics={"topic"})
        locks.forget_topics({"topic"})
        groups.forget_topic("topic")

    yield from _deletion(f"a topic of {GROUPS} groups", delete, master, slave, locks)


def deleted_group() -> Iterator[tuple[str, float]]:
    """Which reads many topics, in order."""
    pairs = [(f"topic-{number}", "group") for number in range(TOPICS)]
    master, slave = _offsets(pairs), _offsets(pairs)
    locks = _locks(pairs)
    groups = _groups()
    for number in range(GROUPS):
        groups.put(SubscriptionGroupConfig(group_name=f"group-{number}"))

    def delete() -> None:
        master.remove(groups={"group"}, topics={"%RETRY%group", "%DLQ%group"})
        master.forget_pulls(groups={"group"})
        locks.forget_groups({"group"})
        groups.delete("group")

    groups.put(SubscriptionGroupConfig(group_name="group"))
    yield from _deletion(f"a group of {TOPICS} topics", delete, master, slave, locks)


def _deletion(
    what: str, delete: Callable[[], None], master: ConsumerOffsets, slave: ConsumerOffsets, locks: QueueLocks
) -> Iterator[tuple[str, float]]:
    before = master.changes
    yield f"{what} is deleted", _ms(delete)
    changed = master.changed_since(before, PART)
    yield f"{what}: the slave takes it over", _ms(lambda: list(slave.take_changes({}, changed.removed)))
    yield f"{what}: its memory is freed before the file is written", _longest(master.texts())
    yield f"{what}: its locks are freed", _longest(locks.expire(0))


def _groups() -> SubscriptionGroups:
    return SubscriptionGroups(
        auto_create=False, allow_long_names=False, may_change=lambda: True, state_version=lambda: 1, now_ms=lambda: 1
    )


def _offsets(pairs: Iterable[tuple[str, str]]) -> ConsumerOffsets:
    offsets = ConsumerOffsets()
    for topic, group in pairs:
        for queue_id in range(4):
            offsets.commit(group, topic, queue_id, 7)
        offsets.pulled(group, topic, 0, 7)
    return offsets


def _locks(pairs: Iterable[tuple[str, str]]) -> QueueLocks:
    locks = QueueLocks()
    for topic, group in pairs:
        locks.lock(group, "client", [MessageQueue(topic=topic, broker_name="b", queue_id=0)], 0, host=group)
    return locks


def _ms(act: Callable[[], object]) -> float:
    began = time.thread_time()
    act()
    return (time.thread_time() - began) * 1000


def _longest(steps: Iterable[None]) -> float:
    longest, began = 0.0, time.thread_time()
    for _ in steps:
        longest = max(longest, time.thread_time() - began)
        began = time.thread_time()
    return max(longest, time.thread_time() - began) * 1000


if __name__ == "__main__":
    sys.exit(main())
