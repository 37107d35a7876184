"""The slave's side of replication, without sockets: what a master's packets mean for the log. Pure.

One `SlaveSession` per connection. The shell (`ha_client`) passes packets in, performs the resulting actions, reports
when they are done, and only then continues to read.
Source: rocketmq-all-5.3.3: AutoSwitchHAClient.java, EpochFileCache.java.

Differs from 5.3.3:
- The handshake is sent once, and acknowledged at once (Java's slave waits up to 5 s when it has nothing new).
- A new epoch is on disk before bytes of it are written, and so before they are acknowledged.
- An epoch without bytes is replaced by the next one that starts at the same offset; Java continues under the old
  number, and cannot distinguish these bytes from those that another master wrote there in that epoch.
- A slave does not follow an epoch before it has learned it from the controllers, nor a master that has not begun the
  epoch that it has learned: what it acknowledges there, together with what others acknowledged before the epochs
  between, could acknowledge a message that none but that master has.
"""

from enum import Enum, auto
from typing import Final

import msgspec

from rocketmq_formats.errors import FrameError
from rocketmq_formats.replication.frames import (
    HAConnectionState,
    MasterHandshake,
    SlaveHandshake,
    TransferHeader,
    encode_slave_handshake,
)
from rocketmq_formats.store.epoch_file import EpochList, EpochOrderError
from rocketmq_sidecar.domain.replication.truncate import consistent_point

State = HAConnectionState


class Event(Enum):
    """What moves a connection from state to state."""

    CONNECTED = auto()
    ANSWERED = auto()
    """The master's handshake has arrived; the log may have to be cut."""
    ALIGNED = auto()
    """The log is a prefix of the master's."""
    HEADER = auto()
    AHEAD = auto()
    """An epoch that this replica does not know yet."""
    RESUMED = auto()
    """Now it does."""
    CLOSED = auto()


TRANSITIONS: Final = {
    (State.READY, Event.CONNECTED): State.HANDSHAKE,
    (State.HANDSHAKE, Event.ANSWERED): State.SUSPEND,
    (State.SUSPEND, Event.ANSWERED): State.SUSPEND,
    (State.TRANSFER, Event.ANSWERED): State.TRANSFER,
    (State.SUSPEND, Event.ALIGNED): State.TRANSFER,
    (State.TRANSFER, Event.HEADER): State.TRANSFER,
    (State.TRANSFER, Event.AHEAD): State.SUSPEND,
    (State.SUSPEND, Event.RESUMED): State.TRANSFER,
    (State.READY, Event.CLOSED): State.SHUTDOWN,
    (State.HANDSHAKE, Event.CLOSED): State.SHUTDOWN,
    (State.SUSPEND, Event.CLOSED): State.SHUTDOWN,
    (State.TRANSFER, Event.CLOSED): State.SHUTDOWN,
    (State.SHUTDOWN, Event.CLOSED): State.SHUTDOWN,
}
"""Anything absent is an error of the master: the connection is closed. A repeated handshake is tolerated."""


class OffsetError(FrameError):
    """A batch that does not continue this log."""


class FutureEpochError(FrameError):
    """The master is in an epoch that this replica has not learned from the controllers."""


class PastEpochError(FrameError):
    """The master has not begun the epoch for which the controllers have elected it."""


class Truncate(msgspec.Struct, frozen=True):
    """Cut the log at `offset` if it reaches further, keep `epochs`; then `on_aligned`."""

    offset: int
    epochs: EpochList


class Record(msgspec.Struct, frozen=True):
    """Make `epochs` durable, then `on_recorded`, then pass the same header in again."""

    epochs: EpochList
    begin: bool = False
    """The log begins with this batch: nothing of an older log may be left in the folder."""


class Wait(msgspec.Struct, frozen=True):
    """Read nothing more until the controllers have named `epoch`; then pass the same header in again."""

    epoch: int


Action = Record | Wait


class SlaveSession:
    """One connection to a master."""

    def __init__(
        self,
        handshake: SlaveHandshake,
        *,
        followed_epoch: int | None,
        epochs: EpochList,
        min_offset: int,
        max_offset: int,
        confirm_offset: int,
        file_size: int,
    ) -> None:
        """`followed_epoch` is the masterEpoch from the controllers; None: the group has none, and the master's log says
        which epoch it is in."""
        self.state = State.READY
        self.epochs = epochs
        self.max_offset = max_offset
        self.confirm_offset = confirm_offset
        self.master_end = 0
        """Where the master's log ended when the connection was made."""
        self._handshake = handshake
        self._followed = followed_epoch
        self._min_offset = min_offset
        self._file_size = file_size
        self._epoch = -1
        self._epoch_start = -1
        self._master_confirm = 0
        self._awaited: int | None = None

    def _move(self, event: Event) -> None:
        state = TRANSITIONS.get((self.state, event))
        if state is None:
            raise FrameError(f"{event.name} from the master in state {self.state.name}")
        self.state = state

    # The beginning

    def on_connected(self) -> bytes:
        """What to send, in one call, once."""
        self._move(Event.CONNECTED)
        return encode_slave_handshake(self._handshake)

    def on_handshake(self, master: MasterHandshake) -> Truncate | None:
        """The master's answer; None if it is a repetition.

        Raises:
            FrameError: wrong state.
            FutureEpochError, PastEpochError: see there.
            NoConsistentPointError: the logs have nothing in common.
        """
        first = self.state is State.HANDSHAKE
        self._move(Event.ANSWERED)
        if not first:
            return None
        followed = master.last_epoch if self._followed is None else self._followed
        if master.last_epoch > followed:
            raise FutureEpochError(
                f"the master is in epoch {master.last_epoch}, the controllers have last named {followed}"
            )
        if master.last_epoch < followed:
            raise PastEpochError(f"the master is still in epoch {master.last_epoch}, it was elected for {followed}")
        self.master_end = master.max_offset
        point = consistent_point(self.epochs, self._min_offset, self.max_offset, master)
        return Truncate(point, self.epochs.truncate_suffix(point))

    def on_cut(self, offset: int) -> None:
        """The log ends at `offset` now."""
        self.max_offset = min(self.max_offset, offset)
        self.confirm_offset = min(self.confirm_offset, offset)

    def on_aligned(self, action: Truncate) -> None:
        """The log was cut and the epochs are durable. Acknowledge `max_offset` at once: Java's masters send nothing
        before that."""
        self._move(Event.ALIGNED)
        self.epochs = action.epochs

    # The stream

    def on_header(self, header: TransferHeader) -> Action | None:
        """None: write the body, `header.size` bytes, into the log at `max_offset`, and report it with `on_body`.

        Raises:
            FrameError: wrong state, or epochs that contradict this replica's.
            OffsetError: it does not continue this log.
        """
        if self.state is not State.TRANSFER:
            self._move(Event.HEADER)
        if header.offset == self.max_offset and header.epoch == self._epoch and header.epoch_start == self._epoch_start:
            size = header.size
            if size > self._file_size - header.offset % self._file_size:
                raise self._other_file_size(header)
            self._master_confirm = header.confirm_offset
            if not size:
                self._confirm()
            return None
        return self._on_other_header(header)

    def _on_other_header(self, header: TransferHeader) -> Action | None:
        if not header.size and (self.max_offset == 0 or header.offset < 0):
            return None  # a heartbeat before the first byte has no information
        begin = self.max_offset == 0
        if begin and (header.offset < 0 or header.offset % self._file_size):
            raise OffsetError(f"the log would begin at {header.offset}, in the middle of a file of {self._file_size}")
        if not begin and header.offset != self.max_offset:
            raise OffsetError(f"a batch from {header.offset}, but this log ends at {self.max_offset}")
        if header.size > self._file_size - header.offset % self._file_size:
            raise self._other_file_size(header)
        if self._followed is not None and header.epoch > self._followed:
            self._move(Event.AHEAD)
            self._awaited = header.epoch
            return Wait(header.epoch)
        epochs = self._with_epoch(EpochList() if begin else self.epochs, header)
        if epochs != self.epochs or (begin and header.offset > 0):
            return Record(epochs, begin)
        self._epoch, self._epoch_start = header.epoch, header.epoch_start
        self._master_confirm = header.confirm_offset
        if not header.size:
            self._confirm()
        return None

    def _with_epoch(self, epochs: EpochList, header: TransferHeader) -> EpochList:
        epoch, start = header.epoch, header.epoch_start
        if header.offset < start < header.offset + header.size:
            raise FrameError(f"a batch from {header.offset} of {header.size} bytes spans epoch {epoch}, from {start}")
        known = epochs.find(epoch)
        if known is not None and known.start_offset == start and known is epochs.entries[-1]:
            return epochs
        if start < self.max_offset and epochs.entries:
            raise FrameError(f"epoch {epoch} from {start} lies before this log's end {self.max_offset} ({epochs})")
        try:
            return epochs.truncate_suffix(start).append(epoch, start)
        except EpochOrderError as error:
            raise FrameError(f"from the master: {error}") from error

    def _other_file_size(self, header: TransferHeader) -> OffsetError:
        return OffsetError(
            f"a batch from {header.offset} of {header.size} bytes does not fit a file of {self._file_size}: "
            "mappedFileSizeCommitLog must be the same on all replicas of a group"
        )

    def on_recorded(self, action: Record, offset: int) -> None:
        """The epochs are durable; a log that begins does so at `offset`."""
        self.epochs = action.epochs
        if action.begin:
            self.max_offset = offset

    def on_followed(self, epoch: int) -> bool:
        """The controllers have named `epoch`; True if a `Wait` is over."""
        if self._followed is None:
            return False
        self._followed = max(self._followed, epoch)
        if self._awaited is None or epoch < self._awaited:
            return False
        self._awaited = None
        self._move(Event.RESUMED)
        return True

    def on_body(self, size: int) -> None:
        """`size` more bytes of a body are in the log."""
        self.max_offset += size
        self._confirm()

    def _confirm(self) -> None:
        self.confirm_offset = max(self.confirm_offset, min(self._master_confirm, self.max_offset))

    def on_closed(self) -> None:
        """The connection ended."""
        self._move(Event.CLOSED)
