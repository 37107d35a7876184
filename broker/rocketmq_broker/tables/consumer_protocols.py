"""What pulling and retrying need of consumer groups: narrow interfaces to the tables of `domain/`."""

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
        """How the group consumes; None if it has no consumers."""

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """The group's subscription to the topic; None if it did not subscribe."""


class OffsetTable(Protocol):
    """Committed offsets."""

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Take over an offset; False if it cannot be one."""

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """The group's next pull begins here."""
