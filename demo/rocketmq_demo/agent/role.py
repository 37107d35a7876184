"""Master or slave: what a broker makes of the views it is given, fenced by the epoch. Pure.

A newer epoch always wins, an older one never counts, the same epoch may bring a newer SyncStateSet or a master's new
address. This is the only place where a role changes.
"""

from enum import StrEnum

from rocketmq_demo.agent.sync_set import SyncSet, View


class Role(StrEnum):
    """What this broker is for its group."""

    UNDECIDED = "undecided"
    MASTER = "master"
    SLAVE = "slave"


class RoleKeeper:
    """The role and the epoch it belongs to."""

    def __init__(self) -> None:
        self.role = Role.UNDECIDED
        self.master_epoch = 0
        self.master_id: int | None = None
        self.master_address: str | None = None
        self.sync_set: SyncSet | None = None
        """Only a master has one."""
        self.vacant = False
        """The group has no master in the newest epoch we know: somebody has to ask for an election."""

    def learn(self, view: View, own_id: int, now: float) -> bool:
        """Take in a view; True if role, master or epoch are not what they were."""
        if view.master_epoch < self.master_epoch:
            return False
        if view.master_id is None or view.master_address is None:
            return self._vacate(view.master_epoch)
        self.vacant = False
        if view.master_epoch == self.master_epoch and self.role is not Role.UNDECIDED:
            if self.sync_set is not None:
                self.sync_set.adopt(view.agreed)
            self.master_address = view.master_address
            return False
        self.master_epoch = view.master_epoch
        self.master_id, self.master_address = view.master_id, view.master_address
        if view.master_id == own_id:
            self.role = Role.MASTER
            self.sync_set = SyncSet(own_id, view.agreed, now)
        else:
            self.role = Role.SLAVE
            self.sync_set = None
        return True

    def _vacate(self, master_epoch: int) -> bool:
        # Also for a master in its own epoch: the controllers take it for restarted or dead, so it must ask again.
        changed = self.role is not Role.UNDECIDED or master_epoch != self.master_epoch
        self.master_epoch = master_epoch
        self.role, self.master_id, self.master_address, self.sync_set = Role.UNDECIDED, None, None, None
        self.vacant = True
        return changed
