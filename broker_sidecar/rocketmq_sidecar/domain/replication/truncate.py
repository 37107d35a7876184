"""Finds where a slave's log and its master's part, and checks whether the slave's log may be cut there. Pure; for
`ha_slave` and `ha_client`.

RIP-44, section Truncation algorithm: walk the slave's epochs from the last one; the first that the master has too,
from the same offset, was written by one and the same master, so both logs are equal up to the earlier of its two ends.

Differs from 5.3.3 (rocketmq-all-5.3.3: AutoSwitchHAClient.java, EpochFileCache.java):
- Entries that start after the end of the slave's log are dropped first: that part of the log was lost, and with them a
  Java slave requests bytes after its end forever. A slave without any bytes has no epochs.
- A slave that has bytes but no epochs shares with its master only what was written before any epoch (a store from
  before controller mode); Java treats all of it as the master's.
- Two logs that both begin at 0 and part there have 0 in common; Java finds nothing and asks for an operator.
- With `durability=strict` confirmed bytes are not cut: every member of the SyncStateSet had them, and a correct
election
  cannot have lost them, so an operator has to judge the cause (a disk, an unclean election). And no log with confirmed
  bytes is cut at 0, which a master of another group would cause.
- Without controllers no whole record is cut: no election says which of two logs has what was acknowledged.
"""

from rocketmq_formats.replication.frames import MasterHandshake
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_formats.store.message import Buffer, RecordError, RecordFault, read_record

HEAD_OF_RECORD = 8
"""Bytes that contain a record's size."""


class ReplicationError(Exception):
    """Replication cannot do what was requested; the text says what an operator can do."""


class TruncationError(ReplicationError):
    """This slave cannot follow that master without an operator; the text says why and what to do."""


class NoConsistentPointError(TruncationError):
    """The two logs have no epoch in common, or only in parts that one of them has deleted."""


class NotAlignedError(TruncationError):
    """No record starts where the log would have to be cut."""


class ConfirmedDataError(TruncationError):
    """The cut would remove confirmed messages."""


class DurableDataError(TruncationError):
    """Without controllers: the cut would remove messages."""


REBUILD = "move this replica's store away and start it again, it is then rebuilt from the master"


def corrected(epochs: EpochList, max_offset: int) -> EpochList:
    """`epochs` without the entries that start after the end of the log; empty if there is no log."""
    return epochs.truncate_suffix(max_offset + 1) if max_offset > 0 else EpochList()


def consistent_point(epochs: EpochList, min_offset: int, max_offset: int, master: MasterHandshake) -> int:
    """The offset up to which the slave's log, from `min_offset` to `max_offset` with `epochs`, equals the master's.

    Returns:
        An offset not above `max_offset`; 0 if the slave has nothing.

    Raises:
        NoConsistentPointError: no such offset exists, or it is before the slave's first byte.
    """
    if max_offset == 0:
        return 0
    ours = corrected(epochs, max_offset)
    theirs = master.epochs.truncate_suffix(master.max_offset + 1)
    point = _shared_end(ours, max_offset, theirs, master.max_offset)
    if point is None or point < min_offset:
        raise NoConsistentPointError(
            f"the master's epochs ({master.epochs}, up to {master.max_offset}) and this replica's ({epochs}, from "
            f"{min_offset} to {max_offset}) have no common point: {REBUILD}"
        )
    return point


def _shared_end(ours: EpochList, our_end: int, theirs: EpochList, their_end: int) -> int | None:
    if not ours.entries:
        return min(our_end, theirs.entries[0].start_offset) if theirs.entries else None
    for entry in reversed(ours.entries):
        other = theirs.find(entry.epoch)
        if other is not None and other.start_offset == entry.start_offset:
            return min(entry.end_offset, our_end, other.end_offset, their_end)
    # Two first masters of one group that never reached each other: nothing is shared, but nothing is missing.
    return 0 if theirs.entries and theirs.entries[0].start_offset == ours.entries[0].start_offset == 0 else None


def check_cut(
    data: Buffer, offset: int, max_offset: int, confirm_offset: int, *, strict: bool, alone: bool = False
) -> None:
    """Whether the log may be cut at `offset` < `max_offset`.

    Args:
        data: the log from `offset` on, to `max_offset` or the end of the file.
        alone: the group has no controllers.

    Raises:
        NotAlignedError: neither a record nor a blank starts there; nor an incomplete one, as the last thing in the log.
        ConfirmedDataError: `strict` or at 0, and at least one whole record behind `offset` ends at or before
            `confirm_offset`.
        DurableDataError: `alone`, and at least one whole record lies behind `offset`.
    """
    end = _end_of_first(data, offset, max_offset)
    if alone and end is not None:
        raise DurableDataError(
            f"the master's log ends or diverges from this one at {offset}, and this one continues to {max_offset}. "
            "Without controllers no election shows which messages were acknowledged, so nothing is cut. To keep what "
            f"is here, exchange brokerId and brokerRole of this replica and the master; to give it up, {REBUILD}"
        )
    if (strict or offset == 0) and end is not None and end <= confirm_offset:
        raise ConfirmedDataError(
            f"the master's log ends or diverges from this one at {offset}, but messages up to {confirm_offset} are "
            "confirmed here: the master has lost them, or was elected although it lacks them. Elect this replica "
            f"instead to keep them; to give them up, {REBUILD}; if the group's masters do not wait for all replicas "
            "(allAckInSyncStateSet=false), set durability=relaxed"
        )


def _end_of_first(data: Buffer, offset: int, max_offset: int) -> int | None:
    """Where the record at `offset` ends, None if it is incomplete."""
    try:
        return offset + read_record(data, 0, len(data), check_crc=True).size
    except RecordError as error:
        # the record that was being received when the connection ended
        cut_short = error.fault is RecordFault.INCOMPLETE and offset + len(data) == max_offset
        if cut_short:
            return None
        raise NotAlignedError(
            f"the log would have to be cut at {offset}, where no record starts ({error}): the log is damaged or the "
            f"master's epochs are not this group's; {REBUILD}"
        ) from error
