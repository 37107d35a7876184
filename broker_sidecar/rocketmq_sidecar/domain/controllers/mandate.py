"""What the control machine asks about its replica's role: who is master, and until when. Pure.

`ControllerSession` answers it with the controllers, `FixedMandate` without any. What both know is here: whether the log
has what was acknowledged. What only controllers are asked and told is in the session alone.
"""

from abc import ABC, abstractmethod

from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.replica_link import LogState, Registered
from rocketmq_sidecar.domain.actions import AcceptLoss, Actions, LogLine, MarkProven
from rocketmq_sidecar.domain.controllers.group_state import GroupState
from rocketmq_sidecar.domain.controllers.lease import NEVER


class Mandate(ABC):
    """Gives no role between `close` and `open`, nor before the first `open`. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.group = GroupState()
        self.trouble: str | None = None
        """What needs an operator."""
        self.address: str | None = None
        """The broker's address; None without a broker."""
        self.opened_at: float | None = None
        """Since when it is known where the broker's log ends."""
        self.lost: str | None = None
        """What is missing from the log, so that this replica must not be master."""
        self.unproven: str | None = None
        """Why the log may lack what was acknowledged."""
        self.log = LogState()
        """The broker's check of the log's bytes: a log that is unchecked or damaged counts as unproven too."""
        self._now = NEVER

    # What is known

    @property
    @abstractmethod
    def broker_id(self) -> int | None:
        """This replica's id, once it is certain."""

    @property
    @abstractmethod
    def waits(self) -> str | None:
        """Why it is not known yet who is master; None: `group` says it."""

    @property
    @abstractmethod
    def lease_until(self) -> float:
        """Until when this replica may be master of the present epoch; may lie in the past."""

    @property
    @abstractmethod
    def elects(self) -> bool:
        """Whether a leading controller answers: another replica can be elected."""

    @property
    def silence(self) -> str | None:
        """Who does not answer, for operators."""
        return None

    @property
    @abstractmethod
    def vouched(self) -> bool:
        """Whether a controller or member answers that would know that the master has died."""

    @property
    def is_master(self) -> bool:
        """Whether the newest view names this replica."""
        return self.waits is None and self.group.master_id is not None and self.group.master_id == self.broker_id

    @property
    def refused(self) -> tuple[int, str]:
        """How often another master was refused, and the last reason."""
        return 0, ""

    @property
    def lease_suspended(self) -> bool:
        """Whether the lease was returned and must not be used."""
        return False

    @property
    def undecided(self) -> frozenset[int]:
        """As master: replicas that may become members by an earlier proposal, and it is unknown whether."""
        return frozenset()

    @property
    def remark(self) -> str | None:
        """What an operator should know."""
        return None

    @property
    def reported_unproven(self) -> str | None:
        """Why the log may lack what was acknowledged, by all that is known; or None."""
        if self.unproven is not None:
            return self.unproven
        if not self.log.checked:
            return "after an unclean stop the last files of the log are read again with their checksums"
        if self.log.damage >= 0:
            return f"the log is damaged: {self.log.reason}; it is repaired from a master, or rebuild this replica"
        return None

    # What happens

    def open(self, address: str) -> None:
        """The broker is connected, at `address`."""
        self.address = address

    def close(self) -> None:
        """The broker is gone."""
        self.address = self.opened_at = self.lost = self.unproven = None
        self.log = LogState()
        self.group.forget()

    def on_log_opened(self, lost: str | None, unproven: str | None, now: float) -> None:
        """Where the log ends is known; what is missing from it, and why something may be."""
        self.lost, self.unproven, self.opened_at = lost, unproven, now

    def on_log(self, state: LogState) -> None:
        """The broker has checked the log's bytes."""
        if state != self.log:
            self.log = state
            self.standing_changed()

    def on_caught_up(self) -> Actions:
        """The log has all that the master had when the connection was made, so all that was acknowledged until then.
        Since then nothing was acknowledged without this replica, while it is in the SyncStateSet."""
        proven = self.on_proven()
        if self.lost is None:
            return proven
        return (*proven, *self.log_complete("the log has recovered what it had lost"))

    def on_proven(self) -> Actions:
        """The log has all that was acknowledged."""
        if self.unproven is None:
            return ()
        self.unproven = None
        self.standing_changed()
        return (MarkProven(), LogLine("the log has all that was acknowledged", {}))

    def on_begun(self) -> Actions:
        """The epoch is served: this log is the master's."""
        return self.on_proven()

    def log_complete(self, why: str) -> Actions:
        """What is missing from the log no longer matters."""
        self.lost = None
        self.standing_changed()
        return (AcceptLoss(), LogLine(why, {}, "warning"))

    @abstractmethod
    def standing_changed(self) -> None:
        """Whether the log has everything is different now."""

    @abstractmethod
    def on_registered(self, registered: Registered) -> None:
        """Whom the name servers list in this group."""

    @abstractmethod
    def on_proposal(self, wanted: SyncStateSet | None) -> None:
        """Replication proposes this set in place of the one with this epoch; None: it proposes nothing any longer."""

    @abstractmethod
    def on_master_lost(self, now: float) -> None:
        """The connection to the master broke."""

    @abstractmethod
    def ask_again(self) -> None:
        """Who is master may be different now."""

    @abstractmethod
    def designate(self, ids: tuple[int, ...]) -> None:
        """As master: have one of these replicas elected in this one's place; empty: stay master."""

    # What to do next

    def settle(self, now: float) -> None:
        """Called after every event, before the role is chosen: it is `now`."""
        self._now = now

    @abstractmethod
    def wake_times(self) -> list[float | None]:
        """When to settle and to ask what is next; the caller ignores None and times that have passed."""

    @abstractmethod
    def next(self, begun: int | None) -> Actions:
        """All that is due. `begun` is the epoch that this replica's replication serves."""
