"""What the controllers answered about this replica's group: who is master, in which epoch, who is in sync. Pure.

A newer epoch always wins, an answer with an older one is ignored, the same epoch may bring a newer SyncStateSet or the
master's new address. `role` decides what the replica does about it.
"""

import msgspec

from rocketmq_formats.codes import RequestCode
from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_sidecar.domain.actions import LogLine


class MasterAnswer(msgspec.Struct, frozen=True):
    """Who is master, by a controller's answer. Unrequested messages never make one: they prove nothing."""

    source: RequestCode
    master_epoch: int | None
    """None if the answer has none, like 1003's without a living master."""
    master_id: int | None
    """None if the group has no master."""
    master_address: str | None
    agreed: SyncStateSet


class GroupState:
    """The newest of all answers."""

    def __init__(self) -> None:
        self.master_epoch = 0
        self.master_id: int | None = None
        self.master_address: str | None = None
        self.agreed = SyncStateSet()
        self.vacant = False
        """The newest answer names no master: a replica has to ask for an election."""

    @property
    def has_master(self) -> bool:
        """Whether there is a master."""
        return self.master_id is not None

    def forget(self) -> None:
        """The connections were closed: who is master must be requested again. The epoch stays, to refuse older ones."""
        self.master_id, self.master_address, self.vacant = None, None, False

    def update(self, answer: MasterAnswer) -> bool:
        """Apply an answer; True if master, its address or the epoch changed."""
        epoch = self.master_epoch if answer.master_epoch is None else answer.master_epoch
        if epoch < self.master_epoch:
            return False
        before = self.master_epoch, self.master_id, self.master_address, self.vacant
        newer = epoch > self.master_epoch
        if answer.master_id is None or not answer.master_address:
            self.master_epoch, self.master_id, self.master_address, self.vacant = epoch, None, None, True
        elif newer or self.master_id in {None, answer.master_id}:
            self.master_epoch, self.master_id, self.master_address = (
                epoch,
                answer.master_id,
                answer.master_address,
            )
            self.vacant = False
        else:
            return False  # another master of the same epoch, which OneMasterPerEpoch excludes
        if newer or answer.agreed.sync_state_set_epoch > self.agreed.sync_state_set_epoch:
            self.agreed = answer.agreed
        return before != (self.master_epoch, self.master_id, self.master_address, self.vacant)

    def adopt(self, agreed: SyncStateSet) -> bool:
        """Apply a set that the controllers agreed to in this epoch; False if it is not newer."""
        if agreed.sync_state_set_epoch <= self.agreed.sync_state_set_epoch:
            return False
        self.agreed = agreed
        return True

    def log_line(self, broker_id: int | None, before: tuple[int, int | None], source: RequestCode) -> LogLine:
        """The log line about a change, for replica `broker_id`; `before`: epoch and master until now."""
        values: dict[str, object] = {
            "broker_id": broker_id,
            "master_id": self.master_id,
            "master_epoch": self.master_epoch,
            "master_address": self.master_address,
            "in_sync": sorted(self.agreed.sync_state_set),
            "before": before,
            "source": source.name,
        }
        return LogLine("the controllers name the master" if self.has_master else "the group has no master", values)
