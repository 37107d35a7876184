"""Has the controllers elect another replica in this master's place (1002 with designateElect). Pure; part of `session`.

With strict durability the request alone is enough. A relaxed master acknowledges alone under its write lease, and
controllers do not replace a master that has one; so it first returns the lease, with heartbeats that announce none. If
the election fails, the lease may count again only when it is certain that no election follows: the request may have
arrived although its answer was lost. So the leading controller must first accept a heartbeat that announces the lease
(from then on it refuses the request), and then answer a 1002 without designation: that answer comes after everything
decided before, and names the resulting master.
"""

from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_sidecar.domain.actions import Request
from rocketmq_sidecar.domain.controllers.group_state import GroupState
from rocketmq_sidecar.domain.controllers.lease import Lease
from rocketmq_sidecar.domain.controllers.request_slots import RequestSlot
from rocketmq_sidecar.domain.controllers.requests import Requests

_UNDECIDED = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY})


class DesignatedElection:
    """One replica's, while it is master."""

    def __init__(
        self, slot: RequestSlot, group: GroupState, lease: Lease, requests: Requests, *, relaxed: bool
    ) -> None:
        self.slot = slot
        self.refused: tuple[int, str] = (0, "")
        """How often the controllers refused the election, and the last reason."""
        self._group = group
        self._lease = lease
        self._requests = requests
        self._relaxed = relaxed
        self._targets: tuple[int, ...] = ()
        self._suspended_epoch = 0
        """The epoch whose lease was returned."""
        self._lease_announced = False
        """The leading controller has accepted a heartbeat that announces the lease again."""

    @property
    def lease_returned(self) -> bool:
        """Whether heartbeats announce no lease."""
        return self._relaxed and bool(self._targets)

    @property
    def lease_suspended(self) -> bool:
        """Whether the lease of the present epoch was returned and must not count yet."""
        return self._suspended_epoch == self._group.master_epoch != 0

    def set_targets(self, targets: tuple[int, ...]) -> bool:
        """Have one of `targets` elected, or stay master if empty; True if that is a change that heartbeats must
        announce."""
        if targets == self._targets:
            return False
        self._targets = targets
        self.slot.reset()
        self.refused = (0, "")
        self._lease_announced = False
        if targets and self._relaxed:
            self._suspended_epoch = self._group.master_epoch
            self._lease.on_denied()
        return True

    def on_leader_changed(self) -> None:
        """The new leader has received no heartbeat yet."""
        self._lease_announced = False

    def on_lease_announced(self) -> None:
        """The leading controller accepted a heartbeat that announces the lease."""
        self._lease_announced = not self._targets

    def request(self, leader: str | None, broker_id: int | None, now: float) -> Request | None:
        """The request to `leader`, as the master `broker_id`, or None."""
        if leader is None or broker_id is None or not self.slot.free(now):
            return None
        if self._targets:
            return self._requests.designate(leader, self._targets, now)
        return self._requests.elect(leader, broker_id, now) if self.lease_suspended and self._lease_announced else None

    def on_refused(self, answer: RemotingCommand) -> None:
        """The controllers did not elect, or could not decide."""
        if answer.code in _UNDECIDED:
            return
        self.refused = (self.refused[0] + 1, answer.remark or f"code {answer.code}")

    def on_named_master(self, epoch: int | None, sent_at: float) -> None:
        """The leading controller's answer to a request of this slot named this replica master of `epoch`."""
        if not self._targets and self.lease_suspended and epoch == self._suspended_epoch:
            self._suspended_epoch = 0
            self._lease.on_confirmed(self._group.master_epoch, sent_at)
