"""What the control machine asks about its replica's role: who is master, and until when. Pure.

`ControllerSession` answers it with the controllers, `FixedMandate` without any. What both know is here: whether the log
has what was acknowledged.
"""
# ruff: noqa: B027 - what only controllers have to hear needs nothing done without them

from abc import ABC, abstractmethod

from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.replica_link import LogState, Registered
from rocketmq_sidecar.domain.actions import AcceptLoss, Actions, Heartbeat, LogLine, MarkProven, Request, Stored
from rocketmq_sidecar.domain.controllers.group_state import GroupState


class Mandate(ABC):
    """Gives no role between `close` and `open`, nor before the first `open`. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.group = GroupState()
        self.trouble: str | None = None
        """What needs an operator."""
        self.address: str | None = None
        """The broker's address; None without a broker."""
        self.lost: str | None = None
        """What is missing from the log, so that this replica must not be master."""
        self.unproven: str | None = None
        """Why the log may lack what was acknowledged."""
        self.log = LogState()
        """The broker's check of the log's bytes: a log that is unchecked or damaged counts as unproven too."""

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
        """Whether somebody answers who would know that the master has died."""

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
        """As master: replicas that may become members by an earlier proposal, and nobody can say whether."""
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

    def open(self, address: str, check_code: str) -> None:  # noqa: ARG002 - for controllers
        """The broker is connected, at `address`. `check_code` (`address;millis`) is for an id applied for from now
        on."""
        self.address = address

    def close(self) -> None:
        """The broker is gone."""
        self.address, self.lost, self.unproven = None, None, None
        self.log = LogState()
        self.group.forget()

    def on_log_opened(self, lost: str | None, unproven: str | None, now: float) -> None:  # noqa: ARG002 - see subclass
        """Where the log ends is known; what is missing from it, and why something may be."""
        self.lost, self.unproven = lost, unproven

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

    def standing_changed(self) -> None:
        """Whether the log has everything is different now."""

    def on_registered(self, registered: Registered) -> None:
        """Whom the name servers list in this group."""

    @abstractmethod
    def on_proposal(self, wanted: SyncStateSet | None) -> None:
        """Replication proposes this set in place of the one with this epoch; None: it proposes nothing any longer."""

    def on_notice(self, now: float) -> None:
        """1008: there may have been an election."""

    def on_master_lost(self, now: float) -> None:
        """The connection to the master broke."""

    def ask_again(self) -> None:
        """Who is master may be different now."""

    def designate(self, ids: tuple[int, ...]) -> None:
        """As master: have one of these replicas elected in this one's place; empty: stay master."""

    def on_answer(self, request: Request, answer: RemotingCommand | None, now: float) -> Actions:  # noqa: ARG002
        """A controller answered, or did not (None: whether it acted is unknown)."""
        return ()

    def on_heartbeat(self, address: str, sent_at: float, *, accepted: bool) -> None:
        """A controller accepted a heartbeat, or whether it did is not known."""

    def on_stored(self, action: Stored, error: str | None, now: float) -> Actions:  # noqa: ARG002
        """An identity file was written durably; or `error` says why not, and it is tried again."""
        return ()

    def return_lease(self, now: float) -> Heartbeat | None:  # noqa: ARG002
        """The heartbeat that ends an announced lease, once the broker no longer acknowledges anything."""
        return None

    # What to do next

    def settle(self, now: float) -> None:
        """Called after every event, before the role is chosen."""

    def on_tick(self, now: float) -> None:
        """Time has passed."""

    @abstractmethod
    def wake_times(self) -> list[float | None]:
        """When to call `on_tick` and `next`; the caller ignores None and times that have passed."""

    @abstractmethod
    def next(self, now: float, begun: int | None) -> Actions:
        """All that is due. `begun` is the epoch that this replica's replication serves."""
