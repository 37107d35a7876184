"""Who is connected: the members of producer and consumer groups, and what the consumers subscribed to.

`clients.py` passes heartbeats, unregistrations and closed connections to it, and notifies the members it returns. A
connection is any hashable key; times are seconds of one clock, given by the caller.
Source: rocketmq-all-5.3.3: ConsumerManager.java, ConsumerGroupInfo.java, ProducerManager.java.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from rocketmq_broker.domain.consuming.subscription import with_own_codes
from rocketmq_formats.remoting.client import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rocketmq_formats.shares import Shares

MAX_MEMBERSHIPS: Final = 200_000
"""Connections times groups, of each kind; a host gets its share only (`rocketmq_formats.shares`)."""

K = TypeVar("K", bound=Hashable)


class NoRoomError(Exception):
    """One more membership would exceed the limit, or the host's share; the text says which."""


class Client(msgspec.Struct, frozen=True, gc=False):
    """Who is behind a connection."""

    client_id: str
    language: str
    version: int


class Members(Generic[K]):
    """Connections by group and the other way round."""

    def __init__(self, host_of: Callable[[K], str] = str) -> None:
        """`host_of`: where a connection comes from."""
        self._host_of = host_of
        self._shares = Shares(MAX_MEMBERSHIPS, "memberships of groups")
        self._groups: dict[str, dict[K, Client]] = {}
        self._of_key: dict[K, set[str]] = {}
        self._of_id: dict[str, dict[K, None]] = {}
        """By client id its connections, the newest last."""

    def groups(self) -> list[str]:
        return list(self._groups)

    def of(self, group: str) -> Mapping[K, Client]:
        return self._groups.get(group, {})

    def find(self, client_id: str) -> K | None:
        """The newest connection of a client."""
        keys = self._of_id.get(client_id)
        return None if keys is None else next(reversed(keys))

    def find_in(self, group: str, client_id: str) -> tuple[K, Client] | None:
        """The newest connection of a member."""
        members = self._groups.get(group, {})
        return next(((key, found) for key, found in reversed(members.items()) if found.client_id == client_id), None)

    def add(self, group: str, key: K, client: Client) -> bool:
        """True if the connection is new to the group, or has another client id now.

        Raises:
            NoRoomError: it is not a member then.
        """
        members = self._groups.get(group)
        before = None if members is None else members.get(key)
        if before == client:
            return False
        if before is None:
            host = self._host_of(key)
            if (reason := self._shares.why_not(host)) is not None:
                raise NoRoomError(reason)
            self._shares.put(host)
        if members is None:
            members = self._groups[group] = {}
        members[key] = client
        self._of_key.setdefault(key, set()).add(group)
        self._of_id.setdefault(client.client_id, {})[key] = None
        if before is not None:
            self._drop_id(before.client_id, key)
        return before is None or before.client_id != client.client_id

    def remove(self, group: str, key: K) -> bool:
        """True if it was a member."""
        members = self._groups.get(group)
        client = None if members is None else members.pop(key, None)
        if members is None or client is None:
            return False
        self._shares.remove(self._host_of(key))
        if not members:
            del self._groups[group]
        groups = self._of_key[key]
        groups.discard(group)
        if not groups:
            del self._of_key[key]
        self._drop_id(client.client_id, key)
        return True

    def remove_all(self, key: K) -> list[str]:
        """The connection has closed; returns the groups it was in."""
        groups = sorted(self._of_key.get(key, ()))
        for group in groups:
            self.remove(group, key)
        return groups

    def _drop_id(self, client_id: str, key: K) -> None:
        """Unless another group still has this client at this connection."""
        if any(self._groups[group][key].client_id == client_id for group in self._of_key.get(key, ())):
            return
        keys = self._of_id[client_id]
        del keys[key]
        if not keys:
            del self._of_id[client_id]


class ConsumerGroup(msgspec.Struct):
    """What the latest heartbeat said of a group."""

    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    subscriptions: dict[str, SubscriptionData]


class Consumers(Generic[K]):
    """Consumer groups with members; implements `consumer_protocols.ConsumerTable`."""

    def __init__(self, host_of: Callable[[K], str] = str) -> None:
        """`host_of`: see `Members`."""
        self.members: Members[K] = Members(host_of)
        self._groups: dict[str, ConsumerGroup] = {}

    def get(self, group: str) -> ConsumerGroup | None:
        """What is known of a group; None without members."""
        return self._groups.get(group)

    def message_model(self, group: str) -> MessageModel | None:
        """How the group consumes; None if nothing is known of it."""
        found = self._groups.get(group)
        return None if found is None else found.message_model

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """The group's subscription to the topic; None if it did not subscribe."""
        found = self._groups.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def register(self, key: K, client: Client, data: ConsumerData, *, minimal: bool = False) -> bool:
        """A heartbeat of a member; True if the members or the subscriptions are others now. `minimal`: without
        subscriptions (RIP-64, heartbeats of version 2), so those that are known stay.

        Raises:
            NoRoomError: see `Members.add`.
        """
        joined = self.members.add(data.group_name, key, client)
        group = self._groups.get(data.group_name)
        if group is None:
            group = ConsumerGroup(data.consume_type, data.message_model, data.consume_from_where, {})
            self._groups[data.group_name] = group
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        return joined if minimal else _update(group.subscriptions, data.subscription_data_set) or joined

    def unregister(self, key: K, group: str) -> bool:
        """A member unregisters; True if it was one."""
        if not self.members.remove(group, key):
            return False
        self._forget([group])
        return True

    def leave(self, key: K) -> list[str]:
        """The connection has closed; returns the groups it was in."""
        groups = self.members.remove_all(key)
        self._forget(groups)
        return groups

    def groups_of(self, topic: str) -> list[str]:
        """Groups that subscribe to the topic now."""
        return sorted(name for name, group in self._groups.items() if topic in group.subscriptions)

    def _forget(self, groups: Iterable[str]) -> None:
        for group in groups:
            if not self.members.of(group):
                self._groups.pop(group, None)


def _update(known: dict[str, SubscriptionData], heard: Iterable[SubscriptionData]) -> bool:
    """Take over newer subscriptions, drop those no longer there; True if topics came or went, or one was replaced."""
    changed = False
    topics = set()
    for subscription in heard:
        topics.add(subscription.topic)
        before = known.get(subscription.topic)
        if before is None or subscription.sub_version > before.sub_version:
            known[subscription.topic] = with_own_codes(subscription)
            # as in Java, members rebalance only when a topic was added or removed
            changed = changed or before is None
    for topic in known.keys() - topics:
        del known[topic]
        changed = True
    return changed
