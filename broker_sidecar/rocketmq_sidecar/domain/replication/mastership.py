"""One replica as master: its epochs, what is acknowledged and confirmed, and who may be in the SyncStateSet. Pure.

Used by `ha_master` for each slave's connection, and by the shell (`ha_server`). `now` is monotonic seconds.
Source: rocketmq-all-5.3.3: AutoSwitchHAService.java.
"""

from collections.abc import Callable
from typing import Final

from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.replication.frames import SlaveHandshake
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_sidecar.domain.replication.confirm import AckRule, offsets
from rocketmq_sidecar.domain.replication.sync_set import SyncSet
from rocketmq_sidecar.domain.replication.truncate import ReplicationError


class StaleEpochError(ReplicationError):
    """This replica was to be master of an epoch older than the last one in its epoch file."""


def begun(epochs: EpochList, epoch: int, max_offset: int) -> EpochList:
    """The epochs of a replica that is master of `epoch` from `max_offset` on, the end of its log.

    Epochs without bytes are dropped. If `epoch` is already in the list with bytes, it was this replica's and continues:
    the replica restarted before the controllers elected again.

    Raises:
        StaleEpochError: a newer epoch is in the list.
    """
    if epochs.last_epoch > epoch:
        raise StaleEpochError(
            f"master of epoch {epoch}, but the epoch file has {epochs} already: did the controllers lose their data, "
            "or had the group none (enableControllerMode=false)? If so, move the epoch file and its .bak away on every "
            "replica"
        )
    kept = epochs.truncate_suffix(max_offset)
    return kept if kept.last_epoch == epoch else kept.append(epoch, max_offset)


_FIRST_ALONE: Final = 1_577_836_800
"""2020 in seconds since 1970: the numbers fit until 2088, and are above all that controllers give."""
_LAST_EPOCH: Final = 2**31 - 1


def begun_alone(epochs: EpochList, max_offset: int, at: float) -> EpochList:
    """The epochs of a replica that is master without controllers and begins at `max_offset`, the end of its log.

    Each beginning has an epoch that no log of the group has had, also if this log is older or newer than the one that
    was written here before. `at`: seconds since 1970.

    Raises:
        ReplicationError: the clock is not between 2020 and 2088.
    """
    number = int(at) - _FIRST_ALONE
    epoch = max(epochs.last_epoch + 1, number)
    if number < 1 or epoch > _LAST_EPOCH:
        raise ReplicationError(
            "this machine's clock is wrong: without controllers the time distinguishes the epochs of the log"
        )
    return epochs.truncate_suffix(max_offset).append(epoch, max_offset)


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
        record_end: Callable[[int], int | None] = lambda _: None,
    ) -> None:
        """`epochs` contains `epoch` already, durably; `confirm` is what this replica knew before. `sync_flush`: only
        what is on this replica's disk counts, as on slaves, which acknowledge what is on theirs. `record_end`: the end
        of the record that begins at this offset of the log; None if no record does."""
        self.epoch = epoch
        self.epochs = epochs
        self.max_offset = max_offset
        self.min_offset = min_offset
        self.sync_set = sync_set
        self.acks: dict[int, int] = {}
        self.officials: frozenset[int] = frozenset()
        """Connected slaves that are official brokers, by their handshakes."""
        self.file_size = file_size
        self.batch_size = batch_size
        self.sync_flush = sync_flush
        self._record_end = record_end
        self.flushed = 0
        """Durable end of the log, as the broker reported it in this mastership."""
        self._rule = rule
        self.confirm = confirm
        self.acked = 0
        self.recompute()

    def continues_in(self, epoch: int) -> bool:
        """Whether this mastership continues in `epoch`. If an epoch lies between, another replica may have been master
        in it, and slaves may have truncated what they had acknowledged here: this replica then counts nothing that
        comes over their connections of before."""
        return epoch <= self.epoch + 1

    def renew(self, epoch: int, epochs: EpochList, max_offset: int, sync_set: SyncSet) -> None:
        """Elected again without another role in between: slaves keep their connections."""
        self.epoch, self.epochs, self.sync_set = epoch, epochs, sync_set
        self.max_offset = max(self.max_offset, max_offset)
        self.recompute()

    def on_handshake(self, slave: SlaveHandshake) -> None:
        """A slave has identified itself, and has acknowledged nothing over its new connection yet."""
        self.acks.pop(slave.broker_id, None)
        officials = self.officials - {slave.broker_id}
        self.officials = officials if slave.native else officials | {slave.broker_id}

    def recompute(self) -> bool:
        """Recompute what is acknowledged and confirmed; True if either moved. Neither goes back."""
        own = min(self.max_offset, self.flushed) if self.sync_flush else self.max_offset
        acked, confirm = offsets(self._rule, self.sync_set, own, self.acks)
        moved = False
        if acked is not None and acked > self.acked:
            self.acked, moved = acked, True
        if confirm is not None and confirm > self.confirm:
            self.confirm, moved = confirm, True
        return moved

    def adopt(self, agreed: SyncStateSet, now: float) -> bool:
        """The controllers agreed to a set; False if it is not newer."""
        return self.sync_set.adopt(agreed, now)

    @property
    def in_sync(self) -> int:
        """Replicas, this one included, that a message waits for or may count on: of a strict master only the connected
        ones, because its SyncStateSet keeps members that are not."""
        return self.sync_set.present if self._rule.strict else self.sync_set.size

    def qualifies(self, ack: int) -> bool:
        """Whether a slave that has acknowledged up to `ack` may become a member: it has everything acknowledged."""
        last_start = self.epochs.entries[-1].start_offset if self.epochs.entries else 0
        return ack >= last_start and ack >= self.confirm and ack >= self.acked

    def propose(self, now: float, timeout: float) -> frozenset[int] | None:
        """As `SyncSet.propose`. A slave that qualified earlier may lack what was acknowledged while its tables were
        copied; nothing is acknowledged without it from now on."""
        return self.sync_set.propose(now, timeout, {slave for slave, ack in self.acks.items() if self.qualifies(ack)})

    def on_unqualified(self, broker_id: int, ack: int) -> None:
        """A slave that has just connected does not qualify: it has not begun the epoch yet, or it has lost what it had
        acknowledged, so that it must not be elected."""
        promised = max(self.confirm, self.acked)
        if ack < promised and not self._is_part_of_record(ack, promised):
            self.sync_set.lost_data(broker_id)
        else:
            self.sync_set.disconnected(broker_id)

    def _is_part_of_record(self, start: int, end: int) -> bool:
        """Slaves acknowledge bytes, even of a record that they have only in part. A slave that becomes master cuts such
        a part off, and lacks no message."""
        record_end = self._record_end(start)
        return record_end is not None and end < record_end


class CatchUpWatch:
    """Which replicas have everything up to `offset`: what a master that hands over waits for. `ha_server` checks it
    after each acknowledgement."""

    def __init__(self, number: int, offset: int) -> None:
        self.number = number
        self._offset = offset
        self._reported: tuple[frozenset[int], bool] | None = None

    def check(self, master: Mastership) -> tuple[frozenset[int], bool] | None:
        """Who acknowledged it all, and whether all copies that sends ask for are there; None if that is not new."""
        caught_up = frozenset(broker_id for broker_id, ack in master.acks.items() if ack >= self._offset)
        now = caught_up, master.acked >= self._offset
        if now == self._reported:
            return None
        self._reported = now
        return now
