"""Machines in one process without a network: tests say which message arrives, in which order, and when the clock
moves."""

import random
from collections.abc import Callable

from pysyncobj.node import Node
from pysyncobj.transport import Transport

from rocketmq_controller.raft import Limits, Timings, messages
from rocketmq_controller.raft.machine import RaftMachine
from tests.sim.commands import CommandList
from tests.sim.memory import MemoryLog, MemorySnapshots

TIMINGS = Timings()


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
        self, name: str = "a", others: str = "bc", *, limits: Limits | None = None, term: int = 0, now: float = 100.0
    ) -> None:
        self.now = now
        self.name, self.others = name, others
        self.limits = limits or Limits()
        self.log = MemoryLog()
        self.log.term = term
        self.snapshots = MemorySnapshots()
        self.start()

    def start(self) -> None:
        self.state = CommandList()
        self.post = Post()
        self.machine = RaftMachine(
            self.name,
            self.others,
            journal=self.log,
            snapshots=self.snapshots,
            state_machine=self.state,
            transport=self.post,
            clock=lambda: self.now,
            rng=random.Random(self.name),
            timings=TIMINGS,
            limits=self.limits,
        )
        for node in self.machine.peers:
            self.post._onNodeConnected(node)

    def restart(self) -> None:
        """The process is killed and started again; what was not synced is lost."""
        self.log = self.log.crash()
        self.start()

    def tick(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.machine.doTick()

    def hear(self, sender: str, message: messages.AnyMessage, *, tick: bool = True) -> None:
        self.machine.receive(sender, message)
        if tick:
            self.machine.doTick()

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
        self.hear(sender, messages.Append(term, prev[0], prev[1], commit, stamp, pairs), tick=tick)

    def ack(
        self, sender: str, next_index: int, *, term: int | None = None, stamp: float | None = None, tick: bool = True
    ) -> None:
        """A follower has everything before `next_index`; by default it answers the newest message."""
        stamp = self.machine._last_stamp if stamp is None else stamp
        self.hear(
            sender, messages.Ack(self.machine.term if term is None else term, True, next_index, 0, stamp), tick=tick
        )

    def take(self, kind: type | None = None) -> list[tuple[str, messages.AnyMessage]]:
        """What was sent since the last call."""
        sent, self.post.sent = self.post.sent, []
        return [(to, message) for to, message in sent if kind is None or isinstance(message, kind)]

    def lead(self) -> None:
        """Be elected, and have the first entry of the term committed."""
        self.tick(TIMINGS.election_max)
        for other in self.others[: (len(self.others) + 1) // 2]:
            self.hear(other, messages.PreVoteReply(self.machine.term, self.machine.term + 1, True))
        for other in self.others[: (len(self.others) + 1) // 2]:
            self.hear(other, messages.VoteReply(self.machine.term, True))
        for other in self.others:
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
        self.at = {name: Lone(name, "".join(o for o in names if o != name), limits=limits) for name in names}
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
