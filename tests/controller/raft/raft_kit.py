"""Machines in one process without a network: tests say which message arrives, in which order, and when the clock
moves."""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from pysyncobj.node import Node
from pysyncobj.transport import Transport

from rocketmq_controller.raft import Limits, Timings
from rocketmq_controller.raft.configuration import encode, of_ids, of_voters
from rocketmq_controller.raft.consensus.machine import RaftMachine
from rocketmq_controller.raft.network import messages
from tests.sim.commands import CommandList
from tests.sim.memory import MemoryLog, MemorySnapshots

TIMINGS = Timings()
STANDS = 2 * TIMINGS.election_min
"""Silence after which a member has asked for pre-votes, whatever its turn."""


class Post(Transport):
    """Keeps what the machine sends."""

    def __init__(self) -> None:
        super().__init__(None, Node("post"), [])
        self.sent: list[tuple[str, messages.AnyMessage]] = []
        self.before_send: Callable[[], None] = lambda: None

    def send(self, node, message) -> bool:
        self.before_send()
        self.sent.append((node.id, message))
        return True


class Lone:
    """One machine among peers that exist in the test's imagination only."""

    def __init__(
        self,
        name: str = "a",
        others: str = "bc",
        *,
        limits: Limits | None = None,
        term: int = 0,
        now: float = 100.0,
        introduced: bool = True,
        readers: bool = False,
    ) -> None:
        """`introduced`: the peers have said that they are old members of the same quorum; `readers`: and that they read
        configurations in the log, so that a leader puts the first one there."""

        self.now = now
        self.name, self.others = name, others
        self.limits = limits or Limits()
        self.log = MemoryLog()
        self.log.term = term
        self.introduced = introduced
        self.readers = readers
        self.hints: Iterable[str] = ()
        self.snapshots = MemorySnapshots()
        self.jobs_wait = False
        self.start()

    def start(self) -> None:
        self.state = CommandList()
        self.jobs: list[Callable[[], None]] = []
        self.post = Post()
        self.machine = RaftMachine(
            self.name,
            of_voters(dict.fromkeys([self.name, *self.others], ("", 0))),
            journal=self.log,
            snapshots=self.snapshots,
            state_machine=self.state,
            transport=self.post,
            clock=lambda: self.now,
            rng=random.Random(self.name),
            timings=TIMINGS,
            limits=self.limits,
            beside=self.beside,
            hints=self.hints,
        )
        for node in self.machine.peers:
            self.connect(node, introduced=self.introduced)
        if self.introduced:
            self.post.sent.clear()

    def beside(self, job: Callable[[], object]) -> "Future[object]":
        """Jobs of another thread are done at once, or wait for `do_jobs`."""
        future: Future[object] = Future()

        def run() -> None:
            try:
                future.set_result(job())
            except Exception as error:  # noqa: BLE001 - as a thread pool does
                future.set_exception(error)

        self.jobs.append(run)
        if not self.jobs_wait:
            self.do_jobs()
        return future

    def do_jobs(self) -> None:
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            job()

    def connect(self, node: Node, *, introduced: bool = True) -> None:
        """A new connection to a peer that, if `introduced`, says that it is an old member of the same quorum, with all
        that is here, and the same vote."""
        self.post._onNodeConnected(node)
        if introduced:
            first = encode(of_ids([self.name, *self.others])) if self.readers else b""
            last = self.machine.last_index
            vote = self.name if self.machine.voted_for == self.name else None
            word = messages.Introduction(self.machine.term, bytes(16), True, False, vote, last, 0, first)
            self.machine.receive(node.id, word)

    def restart(self) -> None:
        """The process is killed and started again; what was not synced is lost."""
        self.log = self.log.crash()
        self.start()

    def tick(self, seconds: float = 0.0) -> None:
        """Time passes, and the machine gets its processor in time. Who wants to hold it up moves `now`."""
        end = self.now + seconds
        while end - self.now > TIMINGS.heartbeat:
            self.now += TIMINGS.heartbeat
            self.machine.tick()
        self.now = end
        self.machine.tick()

    def receive(self, sender: str, message: messages.AnyMessage, *, tick: bool = True) -> None:
        self.machine.receive(sender, message)
        if tick:
            self.machine.tick()

    def append(
        self,
        sender: str = "b",
        *,
        term: int,
        prev: tuple[int, int],
        entries: list[tuple[int, bytes]],
        commit: int = 0,
        stamp: float = 1.0,
        tick: bool = True,
    ) -> None:
        """An Append; commands get their type byte."""
        pairs = tuple((entry_term, b"\x00" + command) for entry_term, command in entries)
        self.receive(sender, messages.Append(term, prev[0], prev[1], commit, stamp, pairs), tick=tick)

    def ack(
        self, sender: str, next_index: int, *, term: int | None = None, stamp: float | None = None, tick: bool = True
    ) -> None:
        """A follower has everything before `next_index`; by default it answers the newest message."""
        stamp = self.machine._last_stamp if stamp is None else stamp
        term = self.machine.term if term is None else term
        self.receive(sender, messages.Ack(term, True, next_index, 0, stamp, promise=TIMINGS.election_min), tick=tick)

    def take(self, kind: type | None = None) -> list[tuple[str, messages.AnyMessage]]:
        """What was sent since the last call."""
        sent, self.post.sent = self.post.sent, []
        return [(to, message) for to, message in sent if kind is None or isinstance(message, kind)]

    def lead(self) -> None:
        """Be elected, and have the first entry of the term committed, and where the others read it the members."""
        self.tick(STANDS)
        for other in self.others[: (len(self.others) + 1) // 2]:
            self.receive(other, messages.PreVoteReply(self.machine.term, self.machine.term + 1, True))
        for other in self.others[: (len(self.others) + 1) // 2]:
            self.receive(other, messages.VoteReply(self.machine.term, True))
        for other in self.others * (1 + self.readers):
            self.ack(other, self.machine.last_index + 1)
        assert self.machine.is_leader
        self.take()

    @property
    def terms(self) -> list[int]:
        return [term for _, _, term in self.log.entries]

    @property
    def commands(self) -> list[bytes]:
        return [command[1:] for command, _, _ in self.log.entries[1:]]


class Trio:
    """Three machines; `deliver` passes on what they sent, `run` also lets time go by. Tests cut links by `blocked`."""

    def __init__(self, names: str = "abc", *, limits: Limits | None = None) -> None:
        self.at = {
            name: Lone(name, "".join(o for o in names if o != name), limits=limits, introduced=False) for name in names
        }
        self.blocked: set[tuple[str, str]] = set()
        self.down: set[str] = set()

    def set_time(self, now: float) -> None:
        for member in self.at.values():
            member.now = now

    @property
    def now(self) -> float:
        return next(iter(self.at.values())).now

    def deliver(self) -> bool:
        moved = False
        batch = [(name, *sent) for name, member in self.at.items() for sent in member.take()]
        for sender, receiver, message in batch:
            if (sender, receiver) in self.blocked or {sender, receiver} & self.down:
                continue
            self.at[receiver].machine.receive(sender, messages.decode(messages.encode(message)))
            moved = True
        return moved

    def settle(self) -> None:
        """All messages arrive, no time passes."""
        for _ in range(1000):
            for name, member in self.at.items():
                if name not in self.down:
                    member.tick()
            if not self.deliver():
                return
        raise AssertionError("the members never stop talking")

    def run(self, seconds: float, step: float = 0.01) -> None:
        end = self.now + seconds
        while self.now < end:
            self.set_time(self.now + step)
            self.settle()

    def drive(self, seconds: float, latencies: Iterable[float]) -> tuple[Counter[str], Counter[str]]:
        """As `Replica` drives them: a tick when one is due, or when a message asks for it. Each message takes the next
        of `latencies`. Returns the ticks of each, and the messages to each."""
        takes = itertools.cycle(latencies)
        ticks: Counter[str] = Counter()
        heard: Counter[str] = Counter()
        wire: list[tuple[float, int, str, str, messages.AnyMessage]] = []
        end, number = self.now + seconds, 0
        while True:
            due, name = min((member.machine.next_deadline(), name) for name, member in self.at.items())
            if wire and wire[0][0] <= due:
                now, _, sender, name, message = heapq.heappop(wire)
                self.set_time(max(now, self.now))
                heard[name] += 1
                tick = self.at[name].machine.receive(sender, message)
            else:
                self.set_time(max(due, self.now))
                tick = True
            if self.now >= end:
                return ticks, heard
            if tick:
                ticks[name] += 1
                self.at[name].machine.tick()
            for receiver, message in self.at[name].take():
                number += 1
                heapq.heappush(wire, (self.now + next(takes), number, name, receiver, message))

    @property
    def leaders(self) -> list[str]:
        return [name for name, member in self.at.items() if name not in self.down and member.machine.is_leader]

    @property
    def leader(self) -> Lone:
        (name,) = self.leaders
        return self.at[name]

    def propose(self, count: int = 1) -> list[object]:
        """Commands at the leader; the list fills with results and errors."""
        answers: list[object] = []
        for number in range(count):
            self.leader.machine.propose(b"%d" % number, lambda value, error: answers.append(error or value))
        return answers
