"""Whether a Java slave replicates from a broker that is not its master. Pure.

In 5.3.3 a slave that connects while its master's address changes may reach the old master's HA port. The old master
serves it there even after it became a slave itself, and the slave does not look at the address again. It reports the
new address all the time, so only what follows from it shows: it stays outside the SyncStateSet.
Source: rocketmq-all-5.3.3: AutoSwitchHAClient.java (connectMaster, updateHaMasterAddress), AutoSwitchHAService.java.
"""

from typing import Final

from rocketmq_sidecar.domain.observing.status import BrokerStatus, GroupStatus

FIRST_SECONDS: Final = 10.0
"""A slave that follows its master joins the set, or its log grows, in this time."""
LONGEST_SECONDS: Final = 300.0
"""Between two reconnections: another reason may keep the slave outside."""
_UNKNOWN: Final = 2**63


class LinkCheck:
    """Judges a slave outside the SyncStateSet; forget it with `reset` once it is inside."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._case: tuple[int | None, int, int] | None = None
        self._set_epoch = -1
        self._pause = FIRST_SECONDS
        self._due = 0.0
        self._slave_end = self._master_end = 0

    def due(self, slave: BrokerStatus, group: GroupStatus, now: float) -> bool:
        """Whether `must_reconnect` is to be asked. `now`: seconds of a steady clock."""
        case = group.master_id, group.master_epoch, slave.started_ms
        if case != self._case:
            self.reset()
            self._case, self._due = case, now + self._pause
            self._slave_end, self._master_end = slave.max_offset, _UNKNOWN
        if group.sync_state_set_epoch != self._set_epoch:  # it may have been inside for less than a poll
            self._set_epoch = group.sync_state_set_epoch
            self._pause = FIRST_SECONDS
            self._due = min(self._due, now + self._pause)
        return now >= self._due

    def must_reconnect(self, slave: BrokerStatus, master: BrokerStatus, now: float) -> bool:
        """True if the slave neither catches up nor joins the set although it has what its master had.

        Args:
            slave: one that reports its master's HA address.
        """
        wrong = slave.max_offset >= self._master_end or slave.max_offset == self._slave_end
        wrong = wrong and _keeps_its_epochs(slave)
        self._due = now + self._pause
        if wrong:
            self._pause = min(2 * self._pause, LONGEST_SECONDS)
        self._slave_end, self._master_end = slave.max_offset, master.max_offset
        return wrong


def _keeps_its_epochs(slave: BrokerStatus) -> bool:
    """Whether it has bytes of its last epoch. When a Java slave connects, it drops an epoch that starts where its log
    ends, and records it again only after another election; a master without that epoch has no slaves."""
    return bool(slave.epochs) and slave.epochs[-1].start_offset < slave.max_offset
