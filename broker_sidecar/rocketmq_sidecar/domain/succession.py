"""What the controllers are asked and told so that they elect another replica in this master's place. Pure; part of
`steward`.

Strict durability needs the question alone (1002, designated). A relaxed master acknowledges by itself under its write
lease, and controllers replace none that has one; so it gives the lease back first, with heartbeats that announce none.
If nobody is elected, the lease may begin anew only when it is certain that nobody is going to be: the question may have
arrived without its answer. So, before the lease counts again, the leading controller has to take a heartbeat that
announces it (from then on it refuses the question) and then to answer an undesignated 1002: it is answered after
everything that was decided before, and names the master that this has made.
"""

from rocketmq_formats.remoting.codes import ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_sidecar.domain.actions import Ask
from rocketmq_sidecar.domain.lanes import Lane
from rocketmq_sidecar.domain.lease import Lease
from rocketmq_sidecar.domain.mandate import Mandate
from rocketmq_sidecar.domain.questions import Questions

_UNDECIDED = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY})


class Succession:
    """Of one replica's mastership."""

    def __init__(self, lane: Lane, mandate: Mandate, lease: Lease, questions: Questions, *, relaxed: bool) -> None:
        self.lane = lane
        self.refused: tuple[int, str] = (0, "")
        """How often the controllers refused to elect whom they were asked for, and the last reason."""
        self._mandate = mandate
        self._lease = lease
        self._questions = questions
        self._relaxed = relaxed
        self._targets: tuple[int, ...] = ()
        self._doubtful = 0
        """The epoch whose lease was given back."""
        self._heard = False
        """The leading controller has taken a heartbeat that announces the lease anew."""

    @property
    def given_back(self) -> bool:
        """Whether heartbeats say that there is no lease."""
        return self._relaxed and bool(self._targets)

    @property
    def in_doubt(self) -> bool:
        """Whether the lease of the present epoch was given back and may not count yet."""
        return self._doubtful == self._mandate.master_epoch != 0

    def aim(self, targets: tuple[int, ...]) -> bool:
        """Have one of `targets` elected, none: nobody; True if that is new, so that the controllers have to be told."""
        if targets == self._targets:
            return False
        self._targets = targets
        self.lane.reset()
        self.refused = (0, "")
        self._heard = False
        if targets and self._relaxed:
            self._doubtful = self._mandate.master_epoch
            self._lease.on_denied()
        return True

    def on_leader_changed(self) -> None:
        """The new one has heard nothing yet."""
        self._heard = False

    def on_heard(self) -> None:
        """The leading controller took a heartbeat that announces the lease."""
        self._heard = not self._targets

    def question(self, leader: str | None, broker_id: int | None, now: float) -> Ask | None:
        """What to ask of `leader` as the master `broker_id`."""
        if leader is None or broker_id is None or not self.lane.free(now):
            return None
        if self._targets:
            return self._questions.designate(leader, self._targets, now)
        return self._questions.elect(leader, broker_id, now) if self.in_doubt and self._heard else None

    def on_refused(self, answer: RemotingCommand) -> None:
        """The controllers did not elect, or did not get so far."""
        if answer.code in _UNDECIDED:
            return
        self.refused = (self.refused[0] + 1, answer.remark or f"code {answer.code}")

    def on_named(self, epoch: int | None, sent_at: float) -> None:
        """The answer to a question of this lane named this replica master of `epoch`."""
        if not self._targets and self.in_doubt and epoch == self._doubtful:
            self._doubtful = 0
            self._lease.on_confirmed(self._mandate.master_epoch, sent_at)
