"""The SyncStateSet that a master wants the controllers to agree to (1001), one question at a time. Pure.

Whether a question whose answer was lost took effect is found out by the next one or by getReplicaInfo: until then
replication counts on both sets. Only a refusal that certainly changed nothing is told as one.
"""

from rocketmq_formats.remoting.codes import ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_sidecar.domain import answers
from rocketmq_sidecar.domain.actions import Ask
from rocketmq_sidecar.domain.lanes import Lane
from rocketmq_sidecar.domain.mandate import Mandate
from rocketmq_sidecar.domain.questions import Questions

_DEFINITE = frozenset(
    {
        ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
        ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
        ResponseCode.CONTROLLER_INVALID_MASTER,
        ResponseCode.CONTROLLER_INVALID_REPLICAS,
        ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
        ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
    }
)


class Wish:
    """What is wanted, and the question under way."""

    def __init__(self, lane: Lane, mandate: Mandate, questions: Questions) -> None:
        self.lane = lane
        self._mandate = mandate
        self._questions = questions
        self._members: frozenset[int] | None = None

    def set(self, members: frozenset[int]) -> None:
        """Replication wants this set."""
        self._members = members

    def forget(self) -> None:
        """Nothing is wanted."""
        self._members = None

    def question(self, leader: str, broker_id: int, now: float) -> Ask | None:
        """What to ask of `leader` as the master `broker_id`."""
        mandate = self._mandate
        if self._members is None or self._members == mandate.agreed.sync_state_set or not self.lane.free(now):
            return None
        wanted = SyncStateSet(sync_state_set=self._members, sync_state_set_epoch=mandate.agreed.sync_state_set_epoch)
        return self._questions.alter(leader, broker_id, mandate.master_epoch, wanted, now)

    def taken(self, answer: RemotingCommand) -> bool:
        """Whether the controllers agreed; then the mandate has the new set. Raises `FormatError`."""
        if answer.code != ResponseCode.SUCCESS:
            return False
        self.lane.succeeded()
        self._mandate.adopt(answers.agreed(answer))
        return True

    def refused_for_certain(self, answer: RemotingCommand) -> bool:
        """Whether nothing was changed; then the wish is over, and replication says again what it wants."""
        if answer.code not in _DEFINITE:
            return False
        self._members = None
        return True
