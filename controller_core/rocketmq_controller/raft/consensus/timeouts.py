"""Election time-outs: the promise that this member asks of its followers, and when it becomes a candidate itself.

A layer of `RaftMachine`, below the elections. On an idle machine a leader asks for the shortest time-out of the
configuration. Three delays make it longer, for a minute: a tick of our own that came late (too little processor, a
pause of the machine, a slow disk), a confirmation by the majority that came late (their starvation, a slow network),
and a majority that did not confirm until we stepped down. `stalls` computes the time-out that the longest of them
needs.

Safety does not depend on these values: a leader may ask for any at any moment, since its lease counts on what was
promised.
"""

from rocketmq_controller.raft.consensus.pysyncobj_adapter import LEADER
from rocketmq_controller.raft.consensus.stalls import Stalls, election_timeout
from rocketmq_controller.raft.consensus.standings import Standings

FOLLOWERS_PULSE = 1.5
"""Heartbeats after which a follower ticks without a message. The half by which this may be too late counts as a delay,
and is too short to make any permitted time-out longer."""
MOST_STEP = 0.1
"""Seconds between the candidacies of two members, at most."""
MOST_DEFERENCE = 0.3
"""Seconds by which a member that is stalled lets others become candidates first, at most."""
MOST_ROUNDS = 6
"""Elections without a result after which the waits between them no longer grow."""


class Timeouts(Standings):
    def start_timeouts(self) -> None:
        """To be called before the first tick."""
        self.stalls = Stalls()
        self.asking = self.timings.election_min
        """The promise that we ask for as leader."""
        self.last_asked = self.timings.election_min
        """The promise that a leader asked us for last."""
        self._ticked = self.now
        self._late = 0.0
        self._excused = False
        self._fruitless = 0

    def pulse_at(self) -> float:
        """When the next tick is due though nothing happens, so that a late tick shows a stall. A follower gives the
        leader's heartbeat time to arrive first: then that is the tick."""
        return self._ticked + self.timings.heartbeat * (1.0 if self.state == LEADER else FOLLOWERS_PULSE)

    def notice_stall(self) -> None:
        """First step of each tick: measure how much later than one heartbeat after the last tick it comes."""
        self._late = self.now - self._ticked - self.timings.heartbeat
        self._ticked = self.now
        if self.peers:
            self.record_delay(self._late)

    def record_delay(self, seconds: float) -> None:
        """Make the time-out outlast delays of `seconds`. A delay that no permitted time-out outlasts is an outage and
        does not count."""
        timings = self.timings
        if seconds <= 0 and self.asking == timings.election_min:
            return  # already the shortest
        if seconds < timings.election_limit:
            self.stalls.record(self.now, seconds)
        self.asking = election_timeout(
            timings.election_min,
            max(timings.election_min, timings.election_limit),
            timings.heartbeat,
            self.stalls.longest(self.now),
        )

    def current_timeout(self) -> float:
        """Seconds of silence that a leader may need."""
        return max(self.asking, self.last_asked)

    def long_wait(self) -> float:
        """Seconds that a leader waits for what delays no other member: its majority, the target of a hand-over."""
        return max(self.timings.step_down, 1.75 * self.asking)

    def until_our_turn(self) -> float:
        """Seconds between the end of a promise and our candidacy: one member after the other, those that are
        stalled last."""
        before = sum(node.id < self.self_id for node in self.peers if node != self.leader)
        step = min(self.current_timeout() / 4, MOST_STEP)
        held_up = self.stalls.longest(self.now) if self.asking > self.timings.election_min else 0.0
        return step * (before + self.rng.uniform(0, 0.5)) + min(held_up, MOST_DEFERENCE)

    def until_next_question(self) -> float:
        """A pre-vote without a majority is repeated soon: the others' promises may run out a little later than ours."""
        return self.current_timeout() * self.rng.uniform(0.125, 0.25)

    def until_next_candidacy(self) -> float:
        """An election without a result is repeated later each time: the voters may be held up."""
        self._fruitless = min(self._fruitless + 1, MOST_ROUNDS)
        return self.current_timeout() * self.rng.uniform(0.25, 0.75) * 1.5 ** (self._fruitless - 1)

    def leader_is_alive(self, promise: float) -> None:
        """The leader is alive and asked for `promise`."""
        self.last_asked = promise
        self._excused = False
        self._fruitless = 0

    def was_held_up(self) -> bool:
        """Whether this tick came so late that messages of the leader may wait to be read. Once for each silence: a
        member that is always stalled must become a candidate too."""
        if self._excused or self._late <= self.timings.heartbeat:
            return False
        self._excused = True
        return True
