"""Which connection speaks for a broker, when several send heartbeats in its name. Used by `HeartbeatTable`.

An entry belongs to one connection, and only what comes over it changes the entry: port 9878 has no passwords, and
anyone can send heartbeats in a broker's name. A heartbeat over another connection is remembered as a rival's. A rival
takes over the entry when the entry's connection closes or has been silent for half its limit, at most 5 s; until then
no other connection can register for the broker either. So a broker that reconnects is not declared dead when its old
connection closes, and a stranger that sends one heartbeat and hangs up harms no broker. A rival gets no write lease.

A connection is at home if it comes from the host of the broker's registered address. An entry that was heard from there
is not given to a connection from elsewhere, however long its own is silent or closed, until the entry is forgotten or
the registered address changes; and a connection at home takes the entry at once from one that is not. So a stranger on
another host that keeps sending heartbeats in a dead master's name does not delay the election. Where brokers register
names, or connect through address translation, no connection is at home, and only the rules above apply.
"""

from collections.abc import Iterable

from rocketmq_controller.domain.broker_entry import BrokerEntry, Origin, Rival

MAX_RIVALS = 4
"""Other connections whose heartbeats in a broker's name are remembered."""
_RIVAL_WAIT = 5.0
"""Seconds of silence after which a connection loses its entry to a rival in any case: the rival may be the broker."""

Place = tuple[str, int]
"""brokerName and brokerId: the place of an entry in the table."""


def is_impostor(entry: BrokerEntry, connection_id: int, origin: Origin) -> bool:
    """Whether a connection from elsewhere speaks for a broker that is known at home."""
    known_at_home = entry.home != "" and entry.home == origin.home
    return known_at_home and not origin.at_home and entry.connection_id != connection_id


def is_rival(entry: BrokerEntry, connection_id: int, origin: Origin, *, silent: float) -> bool:
    """Whether this connection is only a rival: the entry stays with its own one, which has been silent for `silent`
    seconds."""
    if not entry.alive or entry.connection_id is None or entry.connection_id == connection_id:
        return False
    if origin.at_home and entry.home != origin.home:
        return False
    return silent < min(entry.limit / 2, _RIVAL_WAIT)


def newest_rival(entry: BrokerEntry) -> tuple[int, Rival] | None:
    """The connection that would take over the entry, and its last heartbeat."""
    return max(entry.rivals.items(), key=lambda rival: rival[1].received_at, default=None)


class Connections:
    """The entries that each connection speaks for, as their owner or as a rival."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[int, set[Place]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def close(self, connection_id: int) -> Iterable[Place]:
        """Drop the connection; the entries still name it."""
        return self._places.pop(connection_id, ())

    def give(self, entry: BrokerEntry, connection_id: int) -> None:
        """From now on this connection speaks for the broker."""
        if entry.connection_id == connection_id:
            return
        if entry.connection_id is not None:
            self._unlink(entry, entry.connection_id)
        entry.rivals.pop(connection_id, None)
        entry.connection_id = connection_id
        self._link(entry, connection_id)

    def record_rival(self, entry: BrokerEntry, heartbeat: Rival, connection_id: int) -> None:
        """Remember a rival's heartbeat, in place of the rival that has been silent for longest if there are many."""
        if entry.rivals.pop(connection_id, None) is None and len(entry.rivals) >= MAX_RIVALS:
            longest_silent = next(iter(entry.rivals))
            del entry.rivals[longest_silent]
            self._unlink(entry, longest_silent)
        entry.rivals[connection_id] = heartbeat
        self._link(entry, connection_id)

    def drop_rivals(self, entry: BrokerEntry) -> None:
        """Forget all rivals of an entry."""
        for connection_id in entry.rivals:
            self._unlink(entry, connection_id)
        entry.rivals.clear()

    def forget(self, entry: BrokerEntry) -> None:
        """The entry leaves the table."""
        for connection_id in (entry.connection_id, *entry.rivals):
            if connection_id is not None:
                self._unlink(entry, connection_id)

    def _link(self, entry: BrokerEntry, connection_id: int) -> None:
        self._places.setdefault(connection_id, set()).add((entry.key.broker_name, entry.key.broker_id))

    def _unlink(self, entry: BrokerEntry, connection_id: int) -> None:
        places = self._places[connection_id]
        places.discard((entry.key.broker_name, entry.key.broker_id))
        if not places:
            del self._places[connection_id]
