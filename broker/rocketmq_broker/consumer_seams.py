"""What pulling and retrying need to know of consumer groups: narrow interfaces, and stand-ins that allow everything.

The tables themselves (subscription groups, connected consumers, committed offsets) are `consumer_manager.py`'s and its
neighbours'; `app.py` puts them in. The stand-ins serve tests and let a broker without those tables answer pulls.
"""

from typing import Protocol

from rocketmq_formats.remoting.client import MessageModel, SubscriptionData
from rocketmq_formats.topics import SubscriptionGroupConfig


class GroupTable(Protocol):
    """Subscription groups."""

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group, created if that is allowed; None if it does not exist."""


class ConsumerTable(Protocol):
    """Consumers that sent heartbeats."""

    def message_model(self, group: str) -> MessageModel | None:
        """How the group consumes; None if nothing is known of it."""

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """What the group wants of the topic; None if it did not subscribe."""


class OffsetTable(Protocol):
    """Committed offsets."""

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Take over an offset; False if it cannot be one."""


class AllGroups:
    """Every group exists, with Java's defaults."""

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        return SubscriptionGroupConfig(group_name=group)


class AllSubscribed:
    """Every group is clustered and subscribes to everything."""

    def message_model(self, _group: str) -> MessageModel | None:
        return "CLUSTERING"

    def subscription(self, _group: str, topic: str) -> SubscriptionData | None:
        return SubscriptionData(topic=topic, sub_version=2**62)


class NoOffsets:
    """Commits go nowhere."""

    def commit(self, _group: str, _topic: str, _queue_id: int, _offset: int) -> bool:
        return True
