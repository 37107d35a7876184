"""The SyncStateSet that a master proposes to the controllers (1001), one request at a time. Pure.

A proposal names the epoch of the agreed set that it is based on, and is sent only while that set is current: a slave
that qualified before may lack what was acknowledged since. If an answer is lost, the next request or getReplicaInfo
shows whether the proposal took effect; until then replication waits for both sets. A refusal is reported only if it
proves that the agreed set is still the one that the proposal named.
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
set."""


class SyncSetProposal:
    """The proposal, and the request under way."""

    def __init__(self, slot: RequestSlot, group: GroupState, requests: Requests) -> None:
        self.slot = slot
        self._group = group
        self._requests = requests
        self._wanted: SyncStateSet | None = None

    def set(self, wanted: SyncStateSet) -> None:
        """Replication proposes this set in place of the agreed one with this epoch."""
        self._wanted = wanted

    def forget(self) -> None:
        """Drop the proposal."""
        self._wanted = None

    def request(self, leader: str, broker_id: int, now: float) -> Request | None:
        """The request to `leader`, as the master `broker_id`, or None."""
        group, wanted = self._group, self._wanted
        if wanted is None or not self.slot.free(now):
            return None
        agreed = group.agreed
        if wanted.sync_state_set_epoch != agreed.sync_state_set_epoch or wanted.sync_state_set == agreed.sync_state_set:
            return None
        return self._requests.alter(leader, broker_id, group.master_epoch, wanted, now)

    def accepted(self, answer: RemotingCommand) -> bool:
        """Whether the controllers agreed; then the group state has the new set. Raises `FormatError`."""
        if answer.code != ResponseCode.SUCCESS:
            return False
        self.slot.succeeded()
        self._group.adopt(answers.agreed(answer))
        return True

    def certainly_refused(self, answer: RemotingCommand) -> bool:
        """Whether nothing was changed; then the proposal is dropped, and replication makes a new one."""
        if answer.code not in _UNCHANGED:
            return False
        self._wanted = None
        return True
