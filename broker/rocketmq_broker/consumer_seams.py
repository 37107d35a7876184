"""What pulling and retrying need to know of consumer groups: narrow interfaces to the tables of `domain/`, which
`app.py` puts in.
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
