"""Who leads: time-outs, pre-votes, votes, leases and the hand-over, in place of PySyncObj's.

Three promises make the lease safe. A member that heard the leader refuses every vote for `election_min` after, also
towards itself, and after a start it behaves as if it had just heard one. A leader counts on its majority for `lease` <
`election_min` after the moment it *asked*. The promise is lifted early only where the leader cannot count on it any
more: when it closed the connection itself (it forgets a peer's confirmation first; a killed process counts on nothing),
and for a hand-over, where it gives up its lease before it sends TimeoutNow and the stamp in there outdates every
confirmation it may win back later.
"""

import math

from pysyncobj.node import Node

from rocketmq_controller.raft import messages, quorum
from rocketmq_controller.raft.errors import InvariantViolationError
from rocketmq_controller.raft.seam import CANDIDATE, FOLLOWER, LEADER, Seam

NEVER = -math.inf


class Elections(Seam):
    """Follower, candidate and leader as far as they come and go. `start_clockwork` has to be called before the first
    tick."""

    def start_clockwork(self) -> None:
        """Begin as a follower that may have heard a leader just before it crashed."""
        self.disk_full = False
        self._started_at = self.now
        self._heard_at = self.now
        self._heard_stamp = NEVER
        self._leader_gone = False
        self._pre_votes: set[Node] | None = None
        self._votes: set[Node] = set()
        self._echoes: dict[Node, float] = {}
        self._forget_echoes(*self.peers)
        self._led_since = NEVER
        self._lease_floor = NEVER
        self._last_stamp = NEVER
        self.election_deadline = self.now + self._generate_timeout() if self.peers else self.now

    # -- leader: stamps and lease

    def next_stamp(self) -> float:
        """The moment of sending, made strictly growing so that an echo says which message it answers."""
        self._last_stamp = max(self.now, math.nextafter(self._last_stamp, math.inf))
        return self._last_stamp

    def take_echo(self, node: Node, stamp: float) -> None:
        """A follower confirmed in the present term that it heard what was sent at `stamp`."""
        if self._echoes[node] < stamp <= self._last_stamp:
            self._echoes[node] = stamp
            self._confirmed = quorum.reached_by_majority(math.inf, self._echoes.values())

    def _forget_echoes(self, *nodes: Node) -> None:
        self._echoes.update(dict.fromkeys(nodes, NEVER))
        self._confirmed = quorum.reached_by_majority(math.inf, self._echoes.values())

    def confirmed_at(self) -> float:
        """The newest moment at which a majority is known to have followed; oneself always does."""
        return self._confirmed

    def lease_holds(self, now: float) -> bool:
        """No other member can have been elected yet."""
        if self.state != LEADER:
            return False
        return self._confirmed > self._lease_floor and now < self._confirmed + self.timings.lease

    # -- follower: promises

    def hear_leader(self, node: Node, term: int, stamp: float) -> None:
        """A message that only the leader of `term` sends; `term` is not older than ours."""
        if term > self.term:
            self.become_follower(term)
        elif self.state == LEADER or (self.leader is not None and self.leader != node):
            raise InvariantViolationError(f"term {term} has two leaders: {self.leader} and {node}")
        elif self.state == CANDIDATE:
            self.become_follower(term)
        self.leader = node
        self._pre_votes = None
        self._leader_gone = False
        self._heard_at = self.now
        self._heard_stamp = max(self._heard_stamp, stamp)
        self.election_deadline = self.now + self._generate_timeout()

    def is_bound(self) -> bool:
        """A leader may rely on us: no votes for others now."""
        if self.state == LEADER:
            return self.lease_holds(self.now)
        return not self._leader_gone and self.now < self._heard_at + self.timings.election_min

    def peer_gone(self, node: Node) -> None:
        """The other side closed the connection. If that was the leader, it has ended or counts on us no more: do not
        wait."""
        if node == self.leader and self.state == FOLLOWER:
            self._leader_gone = True
            soon = self.now + self.rng.uniform(self.timings.gone_min, self.timings.gone_max)
            self.election_deadline = min(self.election_deadline, soon)

    # -- role changes

    def become_follower(self, term: int) -> None:
        """Follow whoever will lead `term`; a leader's waiting proposals are lost."""
        led = self.state == LEADER
        if term > self.term:
            self.set_term(term, None)
            self._heard_stamp = NEVER
        self.leader = None
        self._pre_votes = None
        self._votes = set()
        self._SyncObj__setState(FOLLOWER)
        if led:
            self.election_deadline = self.now + self._generate_timeout()
            self._SyncObj__onLeaderChanged()

    def tick_election(self) -> None:
        """Stand for election when the leader has been silent; step down when the majority has."""
        if self.state == LEADER:
            if self.now > max(self.confirmed_at(), self._led_since) + self.timings.election_max:
                self.become_follower(self.term)
        elif self.now >= self.election_deadline and self.disk_full and self.peers:
            # A leader that cannot write would only be in the way.
            self.election_deadline = self.now + self._generate_timeout()
        elif self.now >= self.election_deadline:
            if self.state == CANDIDATE:
                self.become_follower(self.term)
            self.leader = None  # silent for too long: nobody is to be sent there any more
            self._pre_votes = set()
            self.election_deadline = self.now + self._retry_delay()
            ask = messages.PreVote(self.term + 1, self.last_index, self.last_term)
            for node in self.peers:
                self.send(node, ask)
            self._count_pre_votes()

    def stand(self, transfer: float | None) -> None:
        """Ask for votes in the next term. `transfer`: the stamp of the TimeoutNow that makes us, None after a
        pre-vote."""
        self._pre_votes = None
        self._votes = set()
        self._heard_stamp = NEVER
        self.leader = None
        self._SyncObj__setState(CANDIDATE)
        self.set_term(self.term + 1, self.self_id)
        self.election_deadline = self.now + self._retry_delay()
        ask = messages.Vote(self.term, self.last_index, self.last_term, transfer)
        for node in self.peers:
            self.send(node, ask)
        self._count_votes()

    def _retry_delay(self) -> float:
        """A round without a result is repeated soon, and not by all at the same moment."""
        return self.timings.election_min * self.rng.uniform(0.25, 0.75)

    def _count_pre_votes(self) -> None:
        if self._pre_votes is not None and len(self._pre_votes) + 1 >= quorum.majority(self.member_count):
            self.stand(None)

    def _count_votes(self) -> None:
        if len(self._votes) + 1 >= quorum.majority(self.member_count):
            self._SyncObj__onBecomeLeader()

    def lead(self) -> None:
        """Clean slate of a new leader; its lease begins with the first confirmations."""
        self._led_since = self.now
        self._lease_floor = NEVER
        self._forget_echoes(*self.peers)

    # -- messages

    def on_pre_vote(self, node: Node, message: messages.PreVote) -> None:
        granted = (
            message.term > self.term
            and not self.is_bound()
            and self._is_up_to_date(message.last_index, message.last_term)
        )
        self.send(node, messages.PreVoteReply(self.term, message.term, granted))

    def on_pre_vote_reply(self, node: Node, message: messages.PreVoteReply) -> None:
        if message.term > self.term:
            self.become_follower(message.term)
        elif message.granted and message.proposed == self.term + 1 and self._pre_votes is not None:
            self._pre_votes.add(node)
            self._count_pre_votes()

    def on_vote(self, node: Node, message: messages.Vote) -> None:
        if message.term < self.term or (self.is_bound() and not self._is_hand_over(message)):
            self.send(node, messages.VoteReply(self.term, granted=False))
            return
        if message.term > self.term:
            up_to_date = self._is_up_to_date(message.last_index, message.last_term)
            self.set_term(message.term, node.id if up_to_date else None)  # both in one write
            self._heard_stamp = NEVER
            self.become_follower(message.term)
            granted = up_to_date
        else:
            granted = self.voted_for == node.id or (
                self.voted_for is None
                and self.leader is None
                and self._is_up_to_date(message.last_index, message.last_term)
            )
            if granted and self.voted_for is None:
                self.set_term(self.term, node.id)
        if granted:
            self.election_deadline = self.now + self._generate_timeout()
        self.send(node, messages.VoteReply(self.term, granted))

    def on_vote_reply(self, node: Node, message: messages.VoteReply) -> None:
        if message.term > self.term:
            self.become_follower(message.term)
        elif message.granted and message.term == self.term and self.state == CANDIDATE:
            self._votes.add(node)
            self._count_votes()

    def on_timeout_now(self, node: Node, message: messages.TimeoutNow) -> None:
        if node == self.leader and message.term == self.term and self._is_released(message.stamp):
            self.stand(message.stamp)

    def _is_hand_over(self, message: messages.Vote) -> bool:
        """The leader of the term before started this election itself and does not rely on us."""
        if message.transfer is None or self.state == LEADER:
            return False
        return self.term < message.term - 1 or (self.term == message.term - 1 and self._is_released(message.transfer))

    def _is_released(self, stamp: float) -> bool:
        """The leader has not asked us for a confirmation after `stamp`; before a crash it may have, hence the wait."""
        return self._heard_stamp <= stamp and self.now >= self._started_at + self.timings.election_min

    def _is_up_to_date(self, last_index: int, last_term: int) -> bool:
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def give_up_lease(self) -> float:
        """Leader: stop relying on anybody; returns a stamp newer than all that was ever sent."""
        self._lease_floor = self.next_stamp()
        return self._lease_floor
