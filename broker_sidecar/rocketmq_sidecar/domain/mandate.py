"""What the controllers say of this replica's group: who is master, in which epoch, who is in sync. Pure.

The fence: a newer epoch always wins, an older one never counts, the same epoch may bring a newer SyncStateSet or the
master's new address. What the replica then does about it is `role`'s business.
"""

import msgspec

from rocketmq_formats.remoting.codes import RequestCode
from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.replica_link import RoleNotice
from rocketmq_sidecar.domain.actions import Note


class View(msgspec.Struct, frozen=True):
    """Who is master, as a controller put it in an answer or a notice."""

    source: RequestCode
    master_epoch: int | None
    """None where the answer left it out, as 1003 does if no master lives."""
    master_id: int | None
    """None if the group has no master."""
    master_address: str | None
    agreed: SyncStateSet


def notice_view(notice: RoleNotice) -> View:
    """A 1008, as the broker passed it on."""
    code = RequestCode.NOTIFY_BROKER_ROLE_CHANGED
    agreed = notice.sync_state_set or SyncStateSet()
    return View(code, notice.master_epoch, notice.master_broker_id, notice.master_address, agreed)


class Mandate:
    """The newest view, folded from all that came in."""

    def __init__(self) -> None:
        self.master_epoch = 0
        self.master_id: int | None = None
        self.master_address: str | None = None
        self.agreed = SyncStateSet()
        self.vacant = False
        """The newest view names no master: somebody has to ask for an election."""

    @property
    def decided(self) -> bool:
        """Whether there is a master."""
        return self.master_id is not None

    def forget(self) -> None:
        """This replica comes and goes: who is master has to be asked anew. The epoch stays, as the fence."""
        self.master_id, self.master_address, self.vacant = None, None, False

    def learn(self, view: View) -> bool:
        """Take in a view; True if master, its address or the epoch are not what they were."""
        epoch = self.master_epoch if view.master_epoch is None else view.master_epoch
        if epoch < self.master_epoch:
            return False
        before = self.master_epoch, self.master_id, self.master_address, self.vacant
        newer = epoch > self.master_epoch
        if view.master_id is None or not view.master_address:
            self.master_epoch, self.master_id, self.master_address, self.vacant = epoch, None, None, True
        elif newer or self.master_id in {None, view.master_id}:
            self.master_epoch, self.master_id, self.master_address = epoch, view.master_id, view.master_address
            self.vacant = False
        else:
            return False  # another master of the same epoch: OneMasterPerEpoch says there is none
        if newer or view.agreed.sync_state_set_epoch > self.agreed.sync_state_set_epoch:
            self.agreed = view.agreed
        return before != (self.master_epoch, self.master_id, self.master_address, self.vacant)

    def adopt(self, agreed: SyncStateSet) -> bool:
        """Take a set that the controllers agreed to in this epoch; False if it is not newer."""
        if agreed.sync_state_set_epoch <= self.agreed.sync_state_set_epoch:
            return False
        self.agreed = agreed
        return True

    def note(self, broker_id: int | None, before: tuple[int, int | None], source: RequestCode) -> Note:
        """The line about what has changed, for replica `broker_id`; `before`: epoch and master until now."""
        values: dict[str, object] = {
            "broker_id": broker_id,
            "master_id": self.master_id,
            "master_epoch": self.master_epoch,
            "master_address": self.master_address,
            "in_sync": sorted(self.agreed.sync_state_set),
            "before": before,
            "source": source.name,
        }
        return Note("the controllers name the master" if self.decided else "the group has no master", values)
