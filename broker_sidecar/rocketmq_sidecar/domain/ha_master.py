"""The master's side of replication, without sockets: what every slave is sent next, and what its words mean. Pure.

`Mastership` is one replica's time as master, `MasterSession` one slave's connection to it. The shell (`ha_server`)
feeds in what arrived and how far the broker's log reaches, and asks `MasterSession.next_batch` what to send. `now` is
monotonic seconds. Source: ha reference, sections 2, 4, 7 and 8.

Differs from 5.3.3:
- A batch carries the number of the epoch its bytes are of. Java gives the last batch before a boundary the next epoch's
  number; slaves of either kind take both.
- A handshake repeated before the first acknowledgement is not answered again: Java's slave sends it twice if header
  and body of the answer arrive apart, and then stumbles over the second answer.
- The newest connection of a brokerId replaces the older one.
- What is confirmed reaches idle slaves within `CONFIRM_DELAY`, not with the next heartbeat after 5 s.
"""

from enum import Enum, auto
from typing import Final

import msgspec

from rocketmq_formats.errors import FrameError
from rocketmq_formats.remoting.controller import EpochEntry, SyncStateSet
from rocketmq_formats.replication.frames import HAConnectionState, SlaveHandshake
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_sidecar.domain.confirm import AckRule, acked_offset, confirm_offset
from rocketmq_sidecar.domain.flow_control import FlowControl
from rocketmq_sidecar.domain.replication_errors import StaleEpochError
from rocketmq_sidecar.domain.sync_set import SyncSet

State = HAConnectionState

BATCH_BEHIND: Final = 1024 * 1024
"""Bytes of one batch to a slave that is behind by more than haTransferBatchSize; Java's slaves take up to 4 MiB."""
CONFIRM_DELAY: Final = 0.1
"""Seconds after which an idle slave is told of a new confirm offset."""


class Event(Enum):
    """What moves a connection from state to state."""

    HANDSHAKE = auto()
    ACK = auto()
    STARVED = auto()
    """Nothing may be sent for now: the second's budget of flow control is used up."""
    FED = auto()
    CLOSED = auto()


TRANSITIONS: Final = {
    (State.READY, Event.HANDSHAKE): State.HANDSHAKE,
    (State.HANDSHAKE, Event.HANDSHAKE): State.HANDSHAKE,
    (State.HANDSHAKE, Event.ACK): State.TRANSFER,
    (State.TRANSFER, Event.ACK): State.TRANSFER,
    (State.TRANSFER, Event.STARVED): State.SUSPEND,
    (State.SUSPEND, Event.ACK): State.SUSPEND,
    (State.SUSPEND, Event.FED): State.TRANSFER,
    (State.READY, Event.CLOSED): State.SHUTDOWN,
    (State.HANDSHAKE, Event.CLOSED): State.SHUTDOWN,
    (State.TRANSFER, Event.CLOSED): State.SHUTDOWN,
    (State.SUSPEND, Event.CLOSED): State.SHUTDOWN,
    (State.SHUTDOWN, Event.CLOSED): State.SHUTDOWN,
}
"""Anything absent is a peer's error: the connection is closed."""


class PositionError(FrameError):
    """A slave says it has bytes that this master never sent, or wants some that are not here any more."""


def begun(epochs: EpochList, epoch: int, max_offset: int) -> EpochList:
    """The epochs of a replica that is master of `epoch` from `max_offset` on, the end of its log.

    Epochs without bytes give way. `epoch` itself, if it is there already with bytes, was this replica's and goes on: it
    restarted before the controllers elected again.

    Raises:
        StaleEpochError: a younger epoch is in the list.
    """
    if epochs.last_epoch > epoch:
        raise StaleEpochError(
            f"master of epoch {epoch}, but the epoch file has {epochs} already: have the controllers lost their data? "
            "If so, move the epoch file and its .bak away on every replica"
        )
    kept = epochs.truncate_suffix(max_offset)
    return kept if kept.last_epoch == epoch else kept.append(epoch, max_offset)


class Batch(msgspec.Struct, frozen=True, gc=False):
    """The next bytes for a slave; none in a heartbeat."""

    offset: int
    size: int
    epoch: int
    epoch_start: int


class Mastership:
    """One replica as master, from its election to its end or to the next epoch of its own."""

    def __init__(
        self,
        *,
        epoch: int,
        epochs: EpochList,
        max_offset: int,
        min_offset: int,
        confirm: int,
        sync_set: SyncSet,
        rule: AckRule,
        file_size: int,
        batch_size: int,
        sync_flush: bool = False,
    ) -> None:
        """`epochs` has `epoch` in it already, durably; `confirm` is what this replica knew before. `sync_flush`: what
        is not on this replica's disk counts for nothing, as on slaves, who acknowledge what is on theirs."""
        self.epoch = epoch
        self.epochs = epochs
        self.max_offset = max_offset
        self.min_offset = min_offset
        self.sync_set = sync_set
        self.acks: dict[int, int] = {}
        self.file_size = file_size
        self.batch_size = batch_size
        self.sync_flush = sync_flush
        self.flushed = 0
        """The broker has told so in this mastership."""
        self._rule = rule
        self.confirm = confirm
        self.acked = 0
        self.settle()

    def renew(self, epoch: int, epochs: EpochList, max_offset: int, sync_set: SyncSet) -> None:
        """Elected again without having been anything else: slaves keep their connections."""
        self.epoch, self.epochs, self.sync_set = epoch, epochs, sync_set
        self.max_offset = max(self.max_offset, max_offset)
        self.settle()

    def settle(self) -> bool:
        """Compute what is acknowledged and confirmed anew; True if either moved. Neither goes back."""
        own = min(self.max_offset, self.flushed) if self.sync_flush else self.max_offset
        acked = acked_offset(self._rule, self.sync_set, own, self.acks)
        confirm = confirm_offset(self._rule, self.sync_set, own, self.acks)
        moved = False
        if acked is not None and acked > self.acked:
            self.acked, moved = acked, True
        if confirm is not None and confirm > self.confirm:
            self.confirm, moved = confirm, True
        return moved

    def adopt(self, agreed: SyncStateSet, now: float) -> bool:
        """The controllers agreed to a set; False if it is not newer."""
        return self.sync_set.adopt(agreed, now)

    def qualifies(self, ack: int) -> bool:
        """Whether a slave that has acknowledged so much may become a member: it has everything that was promised."""
        last_start = self.epochs.entries[-1].start_offset if self.epochs.entries else 0
        return ack >= last_start and ack >= self.confirm and ack >= self.acked


class MasterSession:
    """One slave's connection."""

    def __init__(self, mastership: Mastership, flow: FlowControl) -> None:
        self.mastership = mastership
        self.state = State.READY
        self.slave: SlaveHandshake | None = None
        self.position = -1
        """Offset of the next byte to send; -1 before the first acknowledgement."""
        self.started_at = -1
        """Offset of the first byte sent: transferFromWhere."""
        self.ack = -1
        self.confirm_sent = -1
        self._flow = flow
        self._entry: EpochEntry | None = None
        self._epochs = mastership.epochs
        self._sent_max = 0
        self._sent_at = 0.0

    def _move(self, event: Event) -> None:
        state = TRANSITIONS.get((self.state, event))
        if state is None:
            raise FrameError(f"{event.name} from a slave in state {self.state.name}")
        self.state = state

    # What arrives

    def on_handshake(self, handshake: SlaveHandshake) -> bool:
        """Whether to answer it.

        Raises:
            FrameError: not the time for it, or another brokerId than before.
        """
        self._move(Event.HANDSHAKE)
        if self.slave is None:
            self.slave = handshake
            return True
        if handshake.broker_id != self.slave.broker_id:
            raise FrameError(f"a second handshake as broker {handshake.broker_id}, first {self.slave.broker_id}")
        return False

    def on_ack(self, offset: int, now: float) -> None:
        """The slave's log ends at `offset`.

        Raises:
            FrameError: not the time for it.
            PositionError: bytes it cannot have, or wants bytes that are not here.
        """
        if self.state is not State.TRANSFER:
            self._move(Event.ACK)
        if offset < 0:
            return  # as Java: nothing is known about its log yet
        if self.position < 0:
            self._begin(offset)
        elif offset > self.position:
            raise PositionError(f"acknowledges {offset}, though it was sent nothing behind {self.position}")
        if offset <= self.ack:
            return
        assert self.slave is not None
        broker_id, master = self.slave.broker_id, self.mastership
        if self.ack < 0 and not master.qualifies(offset):
            master.sync_set.left(broker_id)  # it has lost what it had acknowledged: it must not be elected
        self.ack = offset
        master.acks[broker_id] = offset
        if self.slave.async_learner:
            return
        if offset >= master.max_offset:
            master.sync_set.caught_up(broker_id, now)
        elif self._sent_max and offset >= self._sent_max:
            master.sync_set.caught_up(broker_id, self._sent_at)
        if broker_id not in master.sync_set.members and master.qualifies(offset):
            master.sync_set.qualified(broker_id)

    def _begin(self, offset: int) -> None:
        master = self.mastership
        assert self.slave is not None
        start = offset
        if offset == 0:
            start = master.min_offset
            if self.slave.sync_from_last_file:
                start = max(start, master.max_offset - master.max_offset % master.file_size)
        if start > master.max_offset:
            raise PositionError(f"its log ends at {offset}, behind this master's end {master.max_offset}")
        if start < master.min_offset:
            raise PositionError(
                f"wants bytes from {offset}, but this log begins at {master.min_offset} (older files expired): move "
                "that replica's store away and start it again, it is then rebuilt"
            )
        self.position = self.started_at = start

    # What to send

    def next_batch(self, now: float) -> Batch | None:
        """The next bytes, None if there are none or none are allowed. They count as sent."""
        if self.state is State.SUSPEND and (self._flow.budget(now) or 0) > 0:
            self._move(Event.FED)
        if self.state is not State.TRANSFER or self.position < 0:
            return None
        master = self.mastership
        position = self.position
        left = master.max_offset - position
        if left <= 0:
            return None
        entry = self._current_entry()
        size = min(left, master.file_size - position % master.file_size, entry.end_offset - position)
        if size > master.batch_size:
            size = min(size, max(BATCH_BEHIND, master.batch_size))
        budget = self._flow.budget(now)
        if budget is not None:
            size = min(size, budget)
            if size == 0:
                self._move(Event.STARVED)
                return None
            self._flow.used(size)
        self.position = position + size
        self._sent_max, self._sent_at = master.max_offset, now
        self.confirm_sent = master.confirm
        return Batch(position, size, entry.epoch, entry.start_offset)

    def heartbeat(self) -> Batch | None:
        """A batch without bytes, None before the transfer began."""
        if self.position < 0:
            return None
        self.confirm_sent = self.mastership.confirm
        entry = self._current_entry()
        return Batch(self.position, 0, entry.epoch, entry.start_offset)

    def _current_entry(self) -> EpochEntry:
        """The epoch of the byte at `position`."""
        entry, epochs = self._entry, self.mastership.epochs
        # Where an entry ends changes when another is appended, that is with the list.
        if entry is None or self.position >= entry.end_offset or epochs is not self._epochs:
            self._epochs = epochs
            entry = epochs.entry_at(self.position)
            if entry is None:  # bytes from before controller mode
                first = epochs.entries[0]
                entry = EpochEntry(epoch=first.epoch, start_offset=first.start_offset, end_offset=first.start_offset)
            self._entry = entry
        return entry

    def review(self, now: float) -> None:
        """Before the SyncStateSet is looked at: an idle slave is still caught up, and one whose admission was refused
        (the controllers had not heard it yet) qualifies again, without a new message to acknowledge."""
        master, slave = self.mastership, self.slave
        if slave is None or slave.async_learner or self.ack < 0:
            return
        if self.ack >= master.max_offset:
            master.sync_set.caught_up(slave.broker_id, now)
        if slave.broker_id not in master.sync_set.members and master.qualifies(self.ack):
            master.sync_set.qualified(slave.broker_id)

    @property
    def starved(self) -> bool:
        """Whether flow control holds bytes back."""
        return self.state is State.SUSPEND

    def starved_until(self) -> float:
        """When flow control allows more."""
        return self._flow.refilled_at()

    def on_closed(self) -> None:
        """The connection ended."""
        self._move(Event.CLOSED)
