"""Elections: time-outs, pre-votes, votes, leases and the hand-over, in place of PySyncObj's.

Three promises make the lease safe. A member that heard the leader refuses every vote, also for itself, for the time
that the leader asked for; that time changes (see `timeouts`), so every message that asks for a confirmation carries it.
The promise is on disk before it is given, and a member that starts behaves as if it had just heard a leader and
promised it as much. A leader counts on each follower for `lease_share` of what that follower reports it *promised*,
from the moment it *asked*: what it asks for by now, longer or shorter, changes nothing of that.

The promise is lifted early only where the leader itself declares that it does not rely on it: in a Goodbye, when its
process ends, and in the TimeoutNow of a hand-over. It gives up its lease before it sends that, and the stamp in there
outdates every confirmation that it may get later. A connection that ends proves nothing: a device on the path can end
it, and the leader may not notice for seconds.
"""

import math

from pysyncobj.node import Node

from rocketmq_controller.raft.configuration import reached_by_majority
from rocketmq_controller.raft.consensus.pysyncobj_adapter import CANDIDATE, FOLLOWER, LEADER
from rocketmq_controller.raft.consensus.timeouts import Timeouts
from rocketmq_controller.raft.errors import InvariantViolationError
from rocketmq_controller.raft.network import messages

NEVER = -math.inf


class Elections(Timeouts):
    """The roles follower, candidate and leader. `start_clockwork` has to be called before the first
    tick."""

    counting: set[Node]

    def start_clockwork(self) -> None:
        """Begin as a follower that may have heard a leader just before it crashed."""
        self.disk_full = False
        self._bound_until = self.now + max(self.timings.election_min, self.log.promised)
        self._trusted_from = self._bound_until
        """From then on no leader that was heard before the start relies on us."""
        self._recorded_until = self._bound_until
        """Until then the promise on disk may not become shorter."""
        self._heard_stamp = NEVER
        self._pre_votes: set[Node] | None = None
        self._votes: set[Node] = set()
        self._questions: dict[Node, messages.PreVote] = {}
        self._echoes: dict[Node, float] = {}
        """Newest stamp that each follower has heard."""
        self._leases: dict[Node, float] = {}
        """Until when each follower elects no other member, by our clock, with a margin for clocks that differ."""
        self._forget_echoes(*self.peers)
        self._led_since = NEVER
        self._lease_floor = NEVER
        self._last_stamp = NEVER
        self.start_timeouts()
        self.election_deadline = self._bound_until + self.until_our_turn() if self.peers else self.now

    # -- leader: stamps and lease

    def next_stamp(self) -> float:
        """The moment of sending, made strictly growing so that an echo identifies the message it answers."""
        self._last_stamp = max(self.now, math.nextafter(self._last_stamp, math.inf))
        return self._last_stamp

    def take_echo(self, node: Node, stamp: float, promise: float) -> None:
        """A follower confirmed in the present term that it heard what was sent at `stamp`, and promised to elect no
        other member for `promise` seconds from then."""
        if node not in self.counting or not self._echoes[node] < stamp <= self._last_stamp:
            return
        before = max(self._confirmed, self._led_since)
        self._echoes[node] = stamp
        if stamp > self._lease_floor:
            self._leases[node] = max(self._leases[node], stamp + self.timings.lease_share * promise)
        self._count_echoes()
        late = self.now - before - self.timings.heartbeat
        if late > 0 and before < self._confirmed < math.inf:
            self.record_delay(late)

    def _forget_echoes(self, *nodes: Node) -> None:
        self._echoes.update(dict.fromkeys(nodes, NEVER))
        self._leases.update(dict.fromkeys(nodes, NEVER))
        self._count_echoes()

    def _count_echoes(self) -> None:
        """By the configuration that counts; a leader that it takes out does not count itself."""
        own = [math.inf] if self.counts_itself() else []
        self._confirmed = reached_by_majority(own + [self._echoes[node] for node in self.voters])
        self._lease_until = reached_by_majority(own + [self._leases[node] for node in self.voters])

    def peer_joined(self, node: Node) -> None:
        super().peer_joined(node)
        self._echoes[node] = self._leases[node] = NEVER

    def peer_left(self, node: Node) -> None:
        super().peer_left(node)
        self._votes.discard(node)
        self._questions.pop(node, None)
        del self._echoes[node], self._leases[node]

    def recount(self) -> None:
        """Among other voters the majority's confirmation may be an old one, or none: time is given for a new one
        before the leader steps down for lack of it."""
        super().recount()
        self._count_echoes()
        self._led_since = self.now

    def confirmed_at(self) -> float:
        """The newest moment at which a majority is known to have followed; oneself always does."""
        return math.inf if self.log.standing.sole else self._confirmed

    def answers(self, node: Node) -> bool:
        """It has confirmed what was sent within the last election time-out: its host lives, as far as can be known."""
        return self._echoes[node] > self.now - self.asking

    def lease_holds(self, now: float) -> bool:
        """No other member can have been elected yet."""
        return self.state == LEADER and (now < self._lease_until or self.log.standing.sole)

    # -- follower: promises

    def on_leader_message(self, node: Node, term: int, stamp: float, promise: float) -> float:
        """A message that only the leader of `term` sends; `term` is not older than ours. It asks for a promise of
        `promise` seconds. Returns what was promised."""
        if term > self.term:
            self.become_follower(term)
        elif self.state == LEADER or (self.leader is not None and self.leader != node):
            raise InvariantViolationError(f"term {term} has two leaders: {self.leader} and {node}")
        elif self.state == CANDIDATE:
            self.become_follower(term)
        self.leader = node
        self._pre_votes = None
        self.join_lineage_of(node)
        promise = max(promise, self.timings.election_min)
        if promise >= self.log.promised or self.now >= self._recorded_until:
            if promise != self.log.promised:
                self.log.promise(promise)
            self._recorded_until = self.now + promise
        self._bound_until = max(self._bound_until, self.now + promise)
        self._heard_stamp = max(self._heard_stamp, stamp)
        self.leader_is_alive(promise)
        self.election_deadline = self._bound_until + self.until_our_turn()
        return promise

    def is_bound(self) -> bool:
        """A leader may rely on us: no votes for others now."""
        if self.state == LEADER:
            return self.lease_holds(self.now)
        return self.now < self._bound_until

    def on_goodbye(self, node: Node, message: messages.Goodbye) -> None:
        """The process of `node` ends. If it led, it no longer relies on us."""
        if node == self.leader and message.term == self.term and self._is_released(message.stamp):
            self._bound_until = self.now
            self.election_deadline = min(self.election_deadline, self.now + self.until_our_turn())

    def _wait_for_others(self) -> None:
        """Another member is about to lead: do not become a candidate before it had the time to."""
        self.election_deadline = self.now + self.current_timeout() + self.until_our_turn()

    def goodbye(self) -> None:
        """This process ends: notify the others. The machine must not be used after this."""
        stamp = self.give_up_lease()
        for node in self.peers:
            self.send(node, messages.Goodbye(self.term, stamp))

    # -- role changes

    def become_follower(self, term: int) -> None:
        """Follow in `term`; a leader's waiting proposals are lost."""
        led = self.state == LEADER
        if term > self.term:
            self.set_term(term, None)
            self._heard_stamp = NEVER
        self.leader = None
        self._pre_votes = None
        self._votes = set()
        self.set_state(FOLLOWER)
        if led:
            self._wait_for_others()
            self.on_leadership_lost()

    def tick_election(self) -> None:
        """Begin an election when the leader has been silent; step down when the majority has."""
        if self.state == LEADER:
            if self.now > self.step_down_at():
                self.record_delay(self.now - max(self.confirmed_at(), self._led_since))
                self.become_follower(self.term)
        elif self.now < self.election_deadline:
            return
        elif self.peers and self.is_bound():
            self.election_deadline = self._bound_until + self.until_our_turn()
        elif not self._can_be_candidate():
            self.leader = None  # silent for too long, see below
            self._wait_for_others()
        elif self.peers and self.was_held_up():
            self.election_deadline = self.now + self.timings.heartbeat
        else:
            if self.state == CANDIDATE:
                self.become_follower(self.term)
            self.leader = None  # silent for too long: do not redirect clients to it
            self._pre_votes = set()
            self.election_deadline = self.now + self.until_next_question()
            ask = messages.PreVote(self.term + 1, self.last_index, self.last_term)
            for node in self.peers:
                self.send(node, ask)
            self._count_pre_votes()

    def _can_be_candidate(self) -> bool:
        """A store that may count, of a voter, with all that is known to be committed. A leader with a full disk would
        only be in the way, unless it is the only member."""
        fit = self.is_sound() and self.may_be_elected() and self.holds_commit(self.last_index)
        return fit and not (self.disk_full and self.peers)

    def become_candidate(self, transfer: float | None) -> None:
        """Ask for votes in the next term. `transfer`: the stamp of the TimeoutNow that asked for it, None after
        a pre-vote."""
        self._pre_votes = None
        self.set_term(self.term + 1, self.self_id)  # first: a full disk refuses it, and nothing has changed
        self._votes = set()
        self._heard_stamp = NEVER
        self.leader = None
        self.set_state(CANDIDATE)
        self.election_deadline = self.now + self.until_next_candidacy()
        ask = messages.Vote(self.term, self.last_index, self.last_term, transfer)
        for node in self.peers:
            self.send(node, ask)
        self._count_votes()

    def step_down_at(self) -> float:
        """Leader: when to give up on a majority that stays silent."""
        return max(self.confirmed_at(), self._led_since) + self.long_wait()

    def _count_pre_votes(self) -> None:
        if self._pre_votes is not None and self._tally(self._pre_votes) >= self.majority():
            self.become_candidate(None)

    def _count_votes(self) -> None:
        if self._tally(self._votes) >= self.majority():
            self.become_leader()

    def _tally(self, granted: set[Node]) -> int:
        """Votes that count, with our own."""
        return len(granted & self.voters) + self.counts_itself()

    def become_leader(self) -> None:
        """Lead the present term; the lease begins with the first confirmations."""
        self.keep_reports(durable=True)
        self._led_since = self.now
        self._lease_floor = NEVER
        self._fruitless = 0
        self._forget_echoes(*self.peers)
        self.enter_leader_state()

    def on_leadership_lost(self) -> None:
        """Defined where commands wait."""
        raise NotImplementedError

    # -- messages

    def on_pre_vote(self, node: Node, message: messages.PreVote) -> None:
        """Answered in the tick: a message of the leader may have arrived together with it, behind it."""
        self._questions[node] = message

    def answer_pre_votes(self) -> None:
        """After everything that arrived was handled. A leader steps down before it helps to elect another."""
        questions, self._questions = self._questions, {}
        for node, message in questions.items():
            granted = (
                message.term > self.term
                and self.is_sound()
                and self.state != LEADER
                and not self.is_bound()
                and self._is_up_to_date(message.last_index, message.last_term)
            )
            self.send(node, messages.PreVoteReply(self.term, message.term, granted))

    def on_pre_vote_reply(self, node: Node, message: messages.PreVoteReply) -> None:
        if message.term > self.term:
            self.become_follower(message.term)
        elif not self.is_trusted(node):
            return
        elif message.granted and message.proposed == self.term + 1 and self._pre_votes is not None:
            self._pre_votes.add(node)
            self._count_pre_votes()

    def on_vote(self, node: Node, message: messages.Vote) -> None:
        refused = not self.is_sound() or (self.is_bound() and not self._is_hand_over(message))
        if message.term < self.term or refused:
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
            self._wait_for_others()
        self.send(node, messages.VoteReply(self.term, granted))

    def on_vote_reply(self, node: Node, message: messages.VoteReply) -> None:
        if message.term > self.term:
            self.become_follower(message.term)
        elif message.granted and message.term == self.term and self.state == CANDIDATE and self.is_trusted(node):
            self.remember_vote(node, message.term)
            self._votes.add(node)
            self._count_votes()

    def on_timeout_now(self, node: Node, message: messages.TimeoutNow) -> None:
        if not self._can_be_candidate():
            return
        if node == self.leader and message.term == self.term and self._is_released(message.stamp):
            self.become_candidate(message.stamp)

    def _is_hand_over(self, message: messages.Vote) -> bool:
        """The leader of the term before started this election itself and does not rely on us."""
        if message.transfer is None or self.state == LEADER:
            return False
        return self.term < message.term - 1 or (self.term == message.term - 1 and self._is_released(message.transfer))

    def _is_released(self, stamp: float) -> bool:
        """The leader has not asked us for a confirmation after `stamp`; before a crash it may have, so we wait."""
        return self._heard_stamp <= stamp and self.now >= self._trusted_from

    def _is_up_to_date(self, last_index: int, last_term: int) -> bool:
        return (last_term, last_index) >= (self.last_term, self.last_index) and self.holds_commit(last_index)

    def give_up_lease(self) -> float:
        """Leader: stop relying on the followers; returns a stamp newer than all that was ever sent."""
        self._lease_floor = self.next_stamp()
        self._leases = dict.fromkeys(self._leases, NEVER)
        self._count_echoes()
        return self._lease_floor
