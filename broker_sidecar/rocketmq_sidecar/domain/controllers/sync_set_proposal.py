"""The SyncStateSet that a master proposes to the controllers (1001), one request at a time. Pure.

A proposal names the epoch of the agreed set that it is based on, and is sent only while that set is current: a slave
that qualified before may lack what was acknowledged since. If an answer is lost, the next request or getReplicaInfo
shows whether the proposal took effect; until then replication waits for both sets.

A refusal is reported only if it proves that the agreed set is still the one that the proposal named, and that no
earlier proposal can replace it any more. A request without an answer may still be on its way, over another connection
or at a controller that hangs, and be agreed to later. Then the master asks for a new epoch of the set that it has: once
it is agreed to, the controllers refuse whatever names the epoch before. So does a new masterEpoch.
"""

from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_sidecar.domain.actions import Request
from rocketmq_sidecar.domain.controllers import answers
from rocketmq_sidecar.domain.controllers.group_state import GroupState
from rocketmq_sidecar.domain.controllers.request_slots import RequestSlot
from rocketmq_sidecar.domain.controllers.requests import Requests

_UNCHANGED = frozenset({ResponseCode.CONTROLLER_INVALID_REPLICAS, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE})
"""Controllers check the members after the epochs. Any other refusal may follow from an earlier request: if a proposal
took effect, its repetition is refused as equal or with an outdated set epoch, and a new master may come from its
set. An answered request is decided; if its outcome was unknown, the leader that refuses the next one knows it."""


class SyncSetProposal:
    """The proposal, and the request under way."""

    def __init__(self, slot: RequestSlot, group: GroupState, requests: Requests) -> None:
        self.slot = slot
        self._group = group
        self._requests = requests
        self._wanted: SyncStateSet | None = None
        self._last: SyncStateSet | None = None
        """What the last request asked for."""
        self._named = 0, 0
        """masterEpoch and syncStateSetEpoch of the last request."""
        self._unanswered = 0
        """Requests with these epochs that have no answer of a leading controller."""
        self._renewing = False
        """One of them may still be agreed to, and what it proposed is not wanted any longer."""
        self._requested: frozenset[int] = frozenset()
        """Members of the sets that these requests proposed."""
        self._unrenewable = False
        """One may still be agreed to, and the controllers refused a new epoch."""

    @property
    def undecided(self) -> frozenset[int]:
        """Replicas outside the agreed set of which replication cannot learn whether they will be members: the
        controllers refused a new epoch, so only another change of the set or another master decides."""
        group = self._group
        if not self._unrenewable or self._named != (group.master_epoch, group.agreed.sync_state_set_epoch):
            return frozenset()
        return self._requested - group.agreed.sync_state_set

    def set(self, wanted: SyncStateSet) -> None:
        """Replication proposes this set in place of the agreed one with this epoch."""
        self._wanted = wanted

    def forget(self) -> None:
        """Drop the proposal; what was sent may still arrive."""
        self._wanted = None

    def request(self, leader: str, broker_id: int, now: float) -> Request | None:
        """The request to `leader`, as the master `broker_id`, or None."""
        if not self.slot.free(now):
            return None
        group, agreed = self._group, self._group.agreed
        named = group.master_epoch, agreed.sync_state_set_epoch
        if named != self._named:
            self._named, self._unanswered, self._renewing = named, 0, False
            self._requested, self._unrenewable = frozenset(), False
        wanted = agreed if self._renewing else self._wanted
        if wanted is None or wanted.sync_state_set_epoch != agreed.sync_state_set_epoch:
            return None
        if wanted.sync_state_set == agreed.sync_state_set and not self._renewing:
            return None
        self._unanswered += 1
        self._last = wanted
        self._requested |= wanted.sync_state_set
        return self._requests.alter(leader, broker_id, group.master_epoch, wanted, now, renew=self._renewing)

    def accepted(self, answer: RemotingCommand) -> bool:
        """Whether the controllers agreed to the last request; then the group state has the new set. Raises
        `FormatError`."""
        self._unanswered -= 1
        if answer.code != ResponseCode.SUCCESS:
            return False
        self.slot.succeeded()
        self._group.adopt(answers.agreed(answer))
        return True

    def certainly_refused(self, answer: RemotingCommand) -> SyncStateSet | None:
        """The proposal that is dropped, the very object, if nothing was changed and no earlier request can change
        anything; replication makes a new one."""
        if answer.code == ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED:
            # Controllers that cannot renew: the next change of the set settles it, or `control.undecided`.
            self._unrenewable = self._unrenewable or self._renewing
            self._renewing = False
        if answer.code not in _UNCHANGED:
            return None
        self._renewing = self._unanswered > 0
        if not self._renewing:
            self._requested = frozenset()
            if self._wanted != self._last:
                return None  # it is requested next, and its result decides for those before it too
        dropped, self._wanted = self._wanted, None
        return None if self._renewing else dropped
