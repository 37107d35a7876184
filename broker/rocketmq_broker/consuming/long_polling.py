"""Pulls that found nothing and wait for a message: long polling.

`pull.py` holds them here (Java's PullRequestHoldService). New messages wake the pulls of their queues, a timer ends
those that have waited long enough, and a closed connection removes its own.
"""

import asyncio
from collections.abc import Callable, Collection
from itertools import islice
from typing import Final, TypeVar

import msgspec

from rocketmq_formats.remoting.client import PullMessageRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_runtime.remoting.hosts import Hosts
from rocketmq_runtime.remoting.server import Peer

DROPPED_AT_ONCE: Final = 1000
"""Pulls of a closed connection that one turn of the loop drops; 5 ms."""
QueueName = tuple[str, int]
"""Topic and queue id."""
K = TypeVar("K", QueueName, Peer)


class HeldPull(msgspec.Struct, eq=False):
    """One waiting request; `scan_from` advances past messages that its filter does not match."""

    request: RemotingCommand
    peer: Peer
    header: PullMessageRequestHeader
    tag_codes: Collection[int]
    scan_from: int
    timer: asyncio.TimerHandle | None = None
    ripe: bool = False
    """There are new messages in its queue, to be read when the peer takes answers."""


class HeldPulls:
    """Waiting pulls by queue."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._loop = asyncio.get_running_loop()
        self._by_queue: dict[QueueName, dict[HeldPull, None]] = {}
        self._by_peer: dict[Peer, dict[HeldPull, None]] = {}
        self._by_host: Hosts[HeldPull] = Hosts(lambda _pull: 0.0)

    def __len__(self) -> int:
        return len(self._by_host)

    @property
    def full(self) -> bool:
        return len(self) >= self._capacity

    def gives_way(self, peer: Peer) -> HeldPull | None:
        """The pull that may be answered for one more of `peer`: the oldest of the host with the most. None: the host of
        `peer` has as many as any other."""
        return self._by_host.gives_way(peer.host)

    def hold(self, pull: HeldPull, seconds: float, expired: Callable[[HeldPull], None]) -> None:
        """Hold `pull`; after `seconds` it is removed and passed to `expired`."""
        queue = (pull.header.topic, pull.header.queue_id)
        self._by_queue.setdefault(queue, {})[pull] = None
        self._by_peer.setdefault(pull.peer, {})[pull] = None
        self._by_host.add(pull.peer.host, pull)
        pull.timer = self._loop.call_later(seconds, self._expire, pull, expired)

    def of_queue(self, queue: QueueName) -> list[HeldPull]:
        """The pulls that wait for messages of `queue`."""
        return list(self._by_queue.get(queue, ()))

    def ripe_of(self, peer: Peer) -> list[HeldPull]:
        """The pulls of `peer` whose queues have new messages."""
        return [pull for pull in self._by_peer.get(peer, ()) if pull.ripe]

    def all(self) -> list[HeldPull]:
        return [pull for pulls in self._by_queue.values() for pull in pulls]

    def take(self, pull: HeldPull) -> None:
        """Stop holding `pull`; the caller answers it."""
        pull.ripe = False
        if pull.timer is not None:
            pull.timer.cancel()
            pull.timer = None
        queue = (pull.header.topic, pull.header.queue_id)
        _discard(self._by_queue, queue, pull)
        _discard(self._by_peer, pull.peer, pull)
        self._by_host.remove(pull.peer.host, pull)

    def peer_closed(self, peer: Peer) -> None:
        """Drop the pulls of a closed connection, some in each turn of the loop."""
        pulls = self._by_peer.get(peer, {})
        for pull in list(islice(pulls, DROPPED_AT_ONCE)):
            self.take(pull)
        if pulls:
            self._loop.call_soon(self.peer_closed, peer)

    def _expire(self, pull: HeldPull, expired: Callable[[HeldPull], None]) -> None:
        self.take(pull)
        expired(pull)


def _discard(table: dict[K, dict[HeldPull, None]], key: K, pull: HeldPull) -> None:
    pulls = table[key]
    del pulls[pull]
    if not pulls:
        del table[key]
