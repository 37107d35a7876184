"""Changing the members: one at a time, through the log, by the leader.

A layer of `RaftMachine`, above the commands. Before the first change the log gets the first configuration: the voters
stay the same, so any two majorities share a member, and all members read such entries by then. A new member is a
learner until it has caught up, then the leader lets it vote. A leader that an entry takes out brings it to the others'
disks without counting itself, then hands over.
"""

import structlog
from pysyncobj.node import Node

from rocketmq_controller.raft import configuration as membership
from rocketmq_controller.raft.configuration import (
    Change,
    ChangePendingError,
    Configuration,
    MembershipError,
    PromoteMember,
    QuorumAtRiskError,
    majority,
)
from rocketmq_controller.raft.consensus.commands import Commands, Result
from rocketmq_controller.raft.consensus.pysyncobj_adapter import LEADER, MEMBERS
from rocketmq_controller.raft.errors import NotLeaderError, OverloadedError, TransferError

log = structlog.get_logger(__name__)


class Changes(Commands):
    _why_not: str | None = None
    """Why the learner does not vote yet, as it was logged."""

    def change_members(self, change: Change, result: Result) -> None:
        """Put one change into the log, where it counts at once; `result` is called when it is committed.

        Raises:
            NotLeaderError, OverloadedError, MembershipError: nothing was proposed.
        """
        self.now = self.clock()
        if self.state != LEADER or self.transferring:
            raise NotLeaderError(self.leader.id if self.leader is not None and self.state != LEADER else None)
        if self.disk_full:
            raise OverloadedError("the disk is full")
        if self.is_changing:
            raise ChangePendingError("another change of the members is not committed yet: try again in a moment")
        if not self.is_serving:
            # Until then the previous leader's change may be in others' logs, and its quorums need not overlap ours.
            raise ChangePendingError("this leader has committed nothing of its own yet: try again in a moment")
        if silent := self._silent_voters():
            raise MembershipError(
                f"{', '.join(sorted(silent))} may run a release that cannot read changes of the members, and has not "
                "connected since this leader started: bring all members to this release first"
            )
        if not self.configuration.index:
            raise ChangePendingError("the log has no configuration of the members yet: try again in a moment")
        before = membership.with_addresses(self.configuration, self.configurations.first.addresses())
        after = membership.changed(before, change, self.last_index + 1)
        self._check_quorum(after, change)
        log.info("raft members change", member=self.self_id, change=repr(change), index=after.index)
        self.waiting_for_commit[after.index].append((self.term, self.settler(result)))
        self._propose(after)

    def _propose(self, configuration: Configuration) -> None:
        command = MEMBERS + membership.encode(configuration)
        self.log.add(command, configuration.index, self.term)
        self.append_configuration(configuration.index, command)
        self.behind = True

    def _silent_voters(self) -> set[str]:
        """Voters that may not read configurations; empty once one is in the log: all read them by then."""
        return set() if self.configuration.index else {node.id for node in self.voters - self.readers}

    def _check_quorum(self, after: Configuration, change: Change) -> None:
        before = self.configuration.voters
        if after.voters == before or self.log.standing.sole:
            return
        here = self.counting & self.connected
        live = {node.id for node in here if self.answers(node)} | {self.self_id}
        if isinstance(change, PromoteMember):
            live.add(change.id)
        elif change.id not in live and Node(change.id) not in here:  # what is dead already is no loss
            return
        needed = majority(len(after.voters))
        if len(after.voters & live) < needed:
            raise QuorumAtRiskError(
                f"only {', '.join(sorted(after.voters & live)) or 'nobody'} of {', '.join(sorted(after.voters))} is "
                f"answering and caught up, {needed} are needed: repair or remove the others first"
            )

    def drive_members(self) -> None:
        """Once a tick: put the first configuration into the log, let a learner vote that has caught up, and go if one's
        own removal is committed."""
        self.settle_members()
        if self.state != LEADER or self.transferring or self.disk_full or self.is_changing or not self.is_serving:
            return
        if not self.counts_itself():
            self._resign()
            return
        if not self.configuration.index:
            if not self._silent_voters():
                self.forget_markers()  # who is admitted from here on has this entry
                self._propose(membership.of_ids(self.configuration.ids, self.last_index + 1))
            return
        for node in self.peers:
            if node.id in self.configuration.learners and self.is_ready_to_vote(node):
                try:
                    self.change_members(PromoteMember(node.id), lambda _value, _error: None)
                except MembershipError as error:
                    if self._why_not != str(error):
                        self._why_not = str(error)
                        log.warning("raft learner cannot vote yet", learner=node.id, reason=str(error))
                return

    def _resign(self) -> None:
        try:
            self.transfer(None)
        except TransferError:
            self.become_follower(self.term)
