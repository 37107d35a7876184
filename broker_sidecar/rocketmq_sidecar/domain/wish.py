"""The SyncStateSet that a master wants the controllers to agree to (1001), one question at a time. Pure.

A wish names the epoch of the agreed set that it was formed from, and is asked for only while that one stands: whoever
qualified before may lack what was acknowledged since. Whether a question whose answer was lost took effect is found out
by the next one or by getReplicaInfo: until then replication counts on both sets. Only a refusal that proves that the
set is still the one the question named is told as one.
"""

from rocketmq_formats.remoting.codes import ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_sidecar.domain import answers
from rocketmq_sidecar.domain.actions import Ask
from rocketmq_sidecar.domain.lanes import Lane
from rocketmq_sidecar.domain.mandate import Mandate
from rocketmq_sidecar.domain.questions import Questions

_UNCHANGED = frozenset({ResponseCode.CONTROLLER_INVALID_REPLICAS, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE})
"""Controllers look at the members after the epochs. Any other refusal may be the work of an earlier question: "equal"
and a fenced set epoch are what a repeated one gets that took effect, and whoever is master now may be of its set."""


class Wish:
    """What is wanted, and the question under way."""

    def __init__(self, lane: Lane, mandate: Mandate, questions: Questions) -> None:
        self.lane = lane
        self._mandate = mandate
        self._questions = questions
        self._wanted: SyncStateSet | None = None

    def set(self, wanted: SyncStateSet) -> None:
        """Replication wants this set in place of the agreed one with this epoch."""
        self._wanted = wanted

    def forget(self) -> None:
        """Nothing is wanted."""
        self._wanted = None

    def question(self, leader: str, broker_id: int, now: float) -> Ask | None:
        """What to ask of `leader` as the master `broker_id`."""
        mandate, wanted = self._mandate, self._wanted
        if wanted is None or not self.lane.free(now):
            return None
        agreed = mandate.agreed
        if wanted.sync_state_set_epoch != agreed.sync_state_set_epoch or wanted.sync_state_set == agreed.sync_state_set:
            return None
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
        if answer.code not in _UNCHANGED:
            return False
        self._wanted = None
        return True
