"""A group of replicas in memory around the two machines: logs are byte strings, sockets are byte queues.

A byte of a log is its own record, and its value is the epoch it was written in. The controllers are a variable.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.replication.frames import (
    MasterHandshake,
    SlaveHandshake,
    SlaveStream,
    decode_master_packet,
    encode_ack,
    encode_master_handshake,
    encode_transfer_header,
)
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_sidecar.domain.replication.confirm import AckRule
from rocketmq_sidecar.domain.replication.ha_master import FlowControl, MasterSession
from rocketmq_sidecar.domain.replication.ha_slave import PastEpochError, Record, SlaveSession
from rocketmq_sidecar.domain.replication.mastership import Mastership, begun
from rocketmq_sidecar.domain.replication.sync_set import SyncSet
from rocketmq_sidecar.domain.replication.truncate import corrected

FILE_SIZE = 16
STRICT = AckRule(strict=True)


@dataclass
class Store:
    """What one replica has on disk."""

    broker_id: int
    log: bytes = b""
    epochs: EpochList = field(default_factory=EpochList)
    confirm: int = 0
    known_epoch: int = 0


class MemoryLink:
    """One connection of a slave to the present master."""

    def __init__(self, store: Store, master: Mastership, log: Store) -> None:
        self.store, self.master, self.master_store = store, master, log
        self.up = self.down = b""
        self.buffer = b""
        self.body = 0
        self.server = MasterSession(master, FlowControl(None))
        self.stream = SlaveStream()
        self.client = SlaveSession(
            SlaveHandshake(store.broker_id),
            followed_epoch=store.known_epoch,
            epochs=store.epochs,
            min_offset=0,
            max_offset=len(store.log),
            confirm_offset=store.confirm,
            file_size=FILE_SIZE,
        )
        self.up += self.client.on_connected()

    def master_turn(self, size: int, now: float) -> None:
        """The master reads up to `size` bytes and sends a batch."""
        data, self.up = self.up[:size], self.up[size:]
        for packet in self.stream.receive(data):
            if isinstance(packet, SlaveHandshake):
                assert self.server.on_handshake(packet)
                self.master.acks.pop(packet.broker_id, None)
                self.down += encode_master_handshake(self.master.max_offset, self.master.epochs)
            else:
                self.server.on_ack(packet, now)
        self.master.recompute()
        batch = self.server.next_batch(now) or self.server.heartbeat()
        if batch is not None:
            self.down += encode_transfer_header(
                batch.size, batch.offset, batch.epoch, batch.epoch_start, self.master.confirm
            )
            self.down += self.master_store.log[batch.offset : batch.offset + batch.size]

    def slave_turn(self, size: int) -> None:
        """The slave reads up to `size` bytes and acknowledges."""
        self.buffer += self.down[:size]
        self.down = self.down[size:]
        before = self.client.max_offset
        while self.buffer:
            if self.body:
                part = self.buffer[: self.body]
                self.store.log += part
                self.buffer = self.buffer[len(part) :]
                self.body -= len(part)
                self.client.on_body(len(part))
                continue
            found = decode_master_packet(self.buffer, 0, len(self.buffer))
            if found is None:
                break
            packet, end = found
            if isinstance(packet, MasterHandshake):
                self.align(packet)
            else:
                action = self.client.on_header(packet)
                if isinstance(action, Record):
                    self.store.epochs = action.epochs
                    self.client.on_recorded(action, packet.offset)
                    continue
                if action is not None:
                    return  # waits for the controllers
                self.body = packet.size
            self.buffer = self.buffer[end:]
        self.store.confirm = self.client.confirm_offset
        assert len(self.store.log) == self.client.max_offset
        if self.client.max_offset > before:
            self.up += encode_ack(self.client.max_offset)

    def align(self, packet: MasterHandshake) -> None:
        action = self.client.on_handshake(packet)
        if action is None:
            return
        if action.offset < len(self.store.log):
            # Of a correct election nothing confirmed is ever asked back.
            assert action.offset >= self.store.confirm, (action, self.store, packet)
            self.store.log = self.store.log[: action.offset]
            self.client.on_cut(action.offset)
        self.store.epochs = action.epochs
        self.client.on_aligned(action)
        self.up += encode_ack(self.client.max_offset)


class MemoryGroup:
    """Some replicas, at most one master that the controllers know, and what must hold."""

    def __init__(self, count: int) -> None:
        self.stores = {number: Store(number) for number in range(1, count + 1)}
        self.links: dict[int, MemoryLink] = {}
        self.epoch = 0
        self.agreed = SyncStateSet()
        self.wish: SyncStateSet | None = None
        self.master: Mastership | None = None
        self.master_id = 0
        self.acked = b""
        self.now = 0.0

    @property
    def propose(self) -> frozenset[int] | None:
        """The set that the master proposes."""
        return None if self.wish is None else self.wish.sync_state_set

    def elect(self, broker_id: int, lost_tail: int = 0) -> None:
        """A clean election: of a member, if there is a set. What only the loser has may be lost."""
        if self.agreed.sync_state_set and broker_id not in self.agreed.sync_state_set:
            return
        self.links.clear()
        self.epoch += 1
        store = self.stores[broker_id]
        store.known_epoch = self.epoch
        self._keep(broker_id)
        self.wish = None
        store.epochs = begun(corrected(store.epochs, len(store.log)), self.epoch, len(store.log))
        self.master_id = broker_id
        self.master = Mastership(
            epoch=self.epoch,
            epochs=store.epochs,
            max_offset=len(store.log),
            min_offset=0,
            confirm=store.confirm,
            sync_set=SyncSet(broker_id, self.agreed, self.now, strict=True),
            rule=STRICT,
            file_size=FILE_SIZE,
            batch_size=5,
        )
        self.check()

    def elect_again(self) -> None:
        """The master, who keeps its slaves' connections; the slaves hear of it."""
        if self.master is None:
            return
        self.epoch += 1
        store = self.stores[self.master_id]
        self._keep(self.master_id)
        self.wish = None
        store.epochs = begun(store.epochs, self.epoch, len(store.log))
        sync_set = SyncSet(self.master_id, self.agreed, self.now, strict=True)
        self.master.renew(self.epoch, store.epochs, len(store.log), sync_set)
        for broker_id, link in self.links.items():
            self.stores[broker_id].known_epoch = self.epoch
            link.client.on_followed(self.epoch)
        self.check()

    def _keep(self, broker_id: int) -> None:
        """KeepsElectable: an election keeps all members."""
        members = self.agreed.sync_state_set or frozenset({broker_id})
        self.agreed = SyncStateSet(sync_state_set=members, sync_state_set_epoch=self.agreed.sync_state_set_epoch + 1)

    def append(self, size: int) -> None:
        if self.master is None:
            return
        store = self.stores[self.master_id]
        store.log += bytes([self.epoch % 251]) * size
        self.master.max_offset = len(store.log)
        self.check()

    def connect(self, broker_id: int) -> None:
        if self.master is None or broker_id == self.master_id:
            return
        self.disconnect(broker_id)
        self.stores[broker_id].known_epoch = self.epoch
        self.links[broker_id] = MemoryLink(self.stores[broker_id], self.master, self.stores[self.master_id])

    def disconnect(self, broker_id: int) -> None:
        if self.links.pop(broker_id, None) is not None and self.master is not None:
            self.master.acks.pop(broker_id, None)
            self.master.sync_set.disconnected(broker_id)
            self.review()

    def turn(self, broker_id: int, up: int, down: int) -> None:
        link = self.links.get(broker_id)
        if link is not None:
            self.now += 0.001
            try:
                link.slave_turn(down)
            except PastEpochError:  # what the master sent before it was elected again
                self.disconnect(broker_id)
                return
            link.master_turn(up, self.now)
            self.review()
            self.check()

    def review(self) -> None:
        assert self.master is not None
        self.master.sync_set.copied(frozenset(self.master.sync_set.joins.values()))
        wanted = self.master.propose(self.now, 1e9)
        if wanted is not None:
            self.wish = self.master.sync_set.proposed(wanted)

    def decide(self, how: str) -> None:
        """The controllers answer the last wish, or the answer is lost though they agreed. A wish names the set that it
        replaces: refused for any other reason than that, it proves that no earlier wish was agreed to."""
        if self.wish is None or self.master is None:
            return
        wish, self.wish = self.wish, None
        named = self.master.sync_set.epoch == self.agreed.sync_state_set_epoch
        if how == "refuse" or not named:
            if named:
                self.master.sync_set.proposal_refused(wish)
            return
        epoch = self.agreed.sync_state_set_epoch + 1
        self.agreed = SyncStateSet(sync_state_set=wish.sync_state_set, sync_state_set_epoch=epoch)
        if how == "agree":
            self.receive()

    def receive(self) -> None:
        """The master learns what the controllers have."""
        if self.master is not None:
            self.master.adopt(self.agreed, self.now)
            self.master.recompute()
            self.check()

    def check(self) -> None:
        assert self.master is not None
        self.master.recompute()
        store = self.stores[self.master_id]
        store.confirm = self.master.confirm
        promised = store.log[: self.master.acked]
        if len(promised) > len(self.acked):
            assert promised.startswith(self.acked)
            self.acked = promised
        # AckedSurvives: every replica that may be elected has it.
        for member in self.agreed.sync_state_set:
            assert self.stores[member].log.startswith(self.acked), (member, self.acked, self.stores)
        # PrefixAligned
        for one in self.stores.values():
            for other in self.stores.values():
                shared = min(one.confirm, other.confirm)
                assert one.log[:shared] == other.log[:shared], (one, other)
