"""Whether a Java broker's log has all that was acknowledged, by what its sidecar can see. Pure.

The rules are the native replica's (`boot_file`, `acked_offset_file`). Java reports neither what it acknowledged nor
when it has caught up, so both follow from what it and its master report of their logs.
"""

from rocketmq_sidecar.domain.observing.status import BrokerStatus, GroupStatus


def acknowledged(broker: BrokerStatus, group: GroupStatus | None, *, stored: int) -> int:
    """The offset up to which messages may be acknowledged to producers, with allAckInSyncStateSet; 0: not known.

    Args:
        stored: the confirm offset in the checkpoint file, the only one that a slave has.
    """
    if not broker.serves_as_master:
        return min(stored, broker.max_offset)
    acks = [slave.ack for slave in broker.slaves if slave.in_sync]
    if group is None or len(acks) < len(group.in_sync) - 1:
        return 0  # a member is not connected: nothing is acknowledged without it
    return min((broker.max_offset, *acks))


class CatchUpCheck:
    """Whether a slave has all that its master had when both were first seen together. Since then nothing was
    acknowledged without the slave while it is in the SyncStateSet; outside the set it is not elected."""

    def __init__(self) -> None:
        self._pair: tuple[int, int, int, int] | None = None
        self._wanted = 0

    def reached(self, slave: BrokerStatus, master: BrokerStatus, group: GroupStatus) -> bool:
        """`slave` and `master` as they are now, `master` being the one that `group` names."""
        if not master.serves_as_master or group.master_id is None:
            return False
        pair = group.master_id, group.master_epoch, master.started_ms, slave.started_ms
        if pair != self._pair:
            self._pair, self._wanted = pair, master.max_offset
        return _is_part(slave, master) and slave.max_offset >= self._wanted


def _is_part(slave: BrokerStatus, master: BrokerStatus) -> bool:
    """Whether the slave's log is a prefix of the master's: the slave's last epoch starts at the same offset in both, so
    one master wrote it, and the slave's log does not continue after that epoch's end."""
    if not slave.epochs:
        return False
    last = slave.epochs[-1]
    same = [epoch for epoch in master.epochs if (epoch.epoch, epoch.start_offset) == (last.epoch, last.start_offset)]
    return bool(same) and (same[0] is master.epochs[-1] or slave.max_offset <= same[0].end_offset)
