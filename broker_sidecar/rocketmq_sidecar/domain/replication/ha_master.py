"""The master's side of replication, without sockets: what to send each slave next, and what its packets mean. Pure.

`Mastership` is one replica's time as master, `MasterSession` one slave's connection to it. The shell (`ha_server`)
feeds in what arrived and how far the broker's log reaches, and asks `MasterSession.next_batch` what to send. `now` is
monotonic seconds.
Source: rocketmq-all-5.3.3: AutoSwitchHAConnection.java, AutoSwitchHAService.java.

Differs from 5.3.3:
- A batch carries the number of the epoch its bytes are of. Java gives the last batch before a boundary the next epoch's
  number; slaves of either kind accept both.
- A handshake repeated before the first acknowledgement is not answered again: Java's slave sends it twice if header
  and body of the answer arrive apart, and then stumbles over the second answer.
- The newest connection of a brokerId replaces the older one.
- The confirm offset reaches idle slaves within `CONFIRM_DELAY`, not with the next heartbeat after 5 s.
"""

from enum import Enum, auto
from typing import Final

import msgspec

from rocketmq_formats.errors import FrameError
from rocketmq_formats.remoting.controller import EpochEntry
from rocketmq_formats.replication.frames import HAConnectionState, SlaveHandshake
from rocketmq_sidecar.domain.replication.mastership import Mastership

State = HAConnectionState

BATCH_BEHIND: Final = 1024 * 1024
"""Bytes of one batch to a slave that is behind by more than haTransferBatchSize; Java's slaves take up to 4 MiB."""
CONFIRM_DELAY: Final = 0.1
"""Seconds after which an idle slave is sent a new confirm offset."""


class Event(Enum):
    """What moves a connection from state to state."""

    HANDSHAKE = auto()
    ACK = auto()
    THROTTLED = auto()
    """Flow control's budget of this second is used up."""
    UNTHROTTLED = auto()
    CLOSED = auto()


TRANSITIONS: Final = {
    (State.READY, Event.HANDSHAKE): State.HANDSHAKE,
    (State.HANDSHAKE, Event.HANDSHAKE): State.HANDSHAKE,
    (State.HANDSHAKE, Event.ACK): State.TRANSFER,
    (State.TRANSFER, Event.ACK): State.TRANSFER,
    (State.TRANSFER, Event.THROTTLED): State.SUSPEND,
    (State.SUSPEND, Event.ACK): State.SUSPEND,
    (State.SUSPEND, Event.UNTHROTTLED): State.TRANSFER,
    (State.READY, Event.CLOSED): State.SHUTDOWN,
    (State.HANDSHAKE, Event.CLOSED): State.SHUTDOWN,
    (State.TRANSFER, Event.CLOSED): State.SHUTDOWN,
    (State.SUSPEND, Event.CLOSED): State.SHUTDOWN,
    (State.SHUTDOWN, Event.CLOSED): State.SHUTDOWN,
}
"""Anything absent is an error of the peer: the connection is closed."""


class PositionError(FrameError):
    """A slave acknowledges bytes that this master never sent, or requests bytes that it no longer has."""


class Batch(msgspec.Struct, frozen=True, gc=False):
    """The next bytes for a slave; none in a heartbeat."""

    offset: int
    size: int
    epoch: int
    epoch_start: int


class FlowControl:
    """maxHaTransferByteInSecond: how many bytes one slave may be sent in a second, as in Java."""

    def __init__(self, bytes_per_second: int | None) -> None:
        """None: without limit."""
        self._limit = bytes_per_second
        self._second = float("-inf")
        self._sent = 0

    def budget(self, now: float) -> int | None:
        """Bytes that may still be sent in this second; None: any number."""
        if self._limit is None:
            return None
        if now - self._second >= 1.0:
            self._second, self._sent = now, 0
        return max(0, self._limit - self._sent)

    def used(self, size: int) -> None:
        """`size` bytes were sent."""
        self._sent += size

    def refilled_at(self) -> float:
        """When the next second begins."""
        return self._second + 1.0


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
            FrameError: wrong state, or another brokerId than before.
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
            FrameError: wrong state.
            PositionError: it cannot have these bytes, or requests bytes that this log does not have.
        """
        if self.state is not State.TRANSFER:
            self._move(Event.ACK)
        if offset < 0:
            return  # as in Java: its log is not known yet
        if self.position < 0:
            self._begin(offset)
        elif offset > self.position:
            raise PositionError(f"acknowledges {offset}, but was sent nothing after {self.position}")
        if offset <= self.ack:
            return
        assert self.slave is not None
        broker_id, master = self.slave.broker_id, self.mastership
        if self.ack < 0 and not master.qualifies(offset):
            master.on_unqualified(broker_id, offset)
        self.ack = offset
        master.acks[broker_id] = offset
        if self.slave.async_learner:
            return
        if master.sync_set.awaits(broker_id) and master.qualifies(offset):
            master.sync_set.acknowledged_epoch(broker_id, now)
        if offset >= master.max_offset:
            master.sync_set.caught_up(broker_id, now)
        # It has what the log held at the last batch: it was caught up then, even if the log grows without a pause.
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
            raise PositionError(f"its log ends at {offset}, after this master's end {master.max_offset}")
        if start < master.min_offset:
            raise PositionError(
                f"requests bytes from {offset}, but this log begins at {master.min_offset} (older files expired): move "
                "that replica's store away and start it again, it is then rebuilt"
            )
        self.position = self.started_at = start

    # What to send

    @property
    def is_behind(self) -> bool:
        """Whether `next_batch` has something to send, or flow control to wait for."""
        return self.position < self.mastership.max_offset

    def next_batch(self, now: float) -> Batch | None:
        """The next bytes, which count as sent; None at the end of the log, or if flow control holds them back."""
        if self.state is State.SUSPEND and (self._flow.budget(now) or 0) > 0:
            self._move(Event.UNTHROTTLED)
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
                self._move(Event.THROTTLED)
                return None
            self._flow.used(size)
        self.position = position + size
        self._sent_max, self._sent_at = master.max_offset, now
        self.confirm_sent = master.confirm
        return Batch(position, size, entry.epoch, entry.start_offset)

    def heartbeat(self) -> Batch | None:
        """A batch without bytes; None before the transfer has begun."""
        if self.position < 0:
            return None
        self.confirm_sent = self.mastership.confirm
        entry = self._current_entry()
        return Batch(self.position, 0, entry.epoch, entry.start_offset)

    def _current_entry(self) -> EpochEntry:
        """The epoch of the byte at `position`."""
        entry, epochs = self._entry, self.mastership.epochs
        # An entry's end changes when another is appended: then the list is another object.
        if entry is None or self.position >= entry.end_offset or epochs is not self._epochs:
            self._epochs = epochs
            entry = epochs.entry_at(self.position)
            if entry is None:  # bytes from before controller mode
                first = epochs.entries[0]
                entry = EpochEntry(epoch=first.epoch, start_offset=first.start_offset, end_offset=first.start_offset)
            self._entry = entry
        return entry

    def review(self, now: float) -> None:
        """Called before each check of the SyncStateSet: an idle slave is still caught up, and one whose admission was
        refused (the controllers had no heartbeat of it yet) qualifies again, without a new message to acknowledge."""
        master, slave = self.mastership, self.slave
        if slave is None or slave.async_learner or self.ack < 0:
            return
        if master.sync_set.awaits(slave.broker_id) and master.qualifies(self.ack):
            master.sync_set.acknowledged_epoch(slave.broker_id, now)
        if self.ack >= master.max_offset:
            master.sync_set.caught_up(slave.broker_id, now)
        if slave.broker_id not in master.sync_set.members and master.qualifies(self.ack):
            master.sync_set.qualified(slave.broker_id)

    @property
    def throttled(self) -> bool:
        """Whether flow control holds bytes back."""
        return self.state is State.SUSPEND

    def throttled_until(self) -> float:
        """When flow control allows more."""
        return self._flow.refilled_at()

    def on_closed(self) -> None:
        """The connection ended."""
        self._move(Event.CLOSED)
