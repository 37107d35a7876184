"""PySyncObj behind one class: `RaftCore` gives its private members readable names. No other module uses a mangled name.

PySyncObj 0.3.17 holds the Raft state (role, term, vote, log, indexes of the followers, waiting commands) and the steps
that change it. The modules above add what it lacks, one concern each, in one line of subclasses of `RaftCore`:
`members`, `standings`, `timeouts`, `elections`, `replication`, `snapshots`, `transfer`, `commands`, `changes`,
`machine`. docs/architecture.md says which of its methods run. The version is pinned here and the source of every method
that we rely on is pinned in a test, so an upgrade fails until the changes have been read.
"""

# ruff: noqa: ARG002, N802, N803, SLF001 - the names are PySyncObj's

import random
from collections.abc import Callable, Iterable
from typing import overload

from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.fast_queue import FastQueue
from pysyncobj.journal import Journal
from pysyncobj.node import Node
from pysyncobj.syncobj import _RAFT_STATE
from pysyncobj.transport import Transport
from pysyncobj.version import VERSION

from rocketmq_controller.raft.errors import InvariantViolationError
from rocketmq_controller.raft.ports import Entry, LogStore
from rocketmq_controller.raft.settings import Limits, Timings
from rocketmq_runtime.files.filesystem import DiskFullError

PINNED_VERSION = "0.3.17"
if VERSION != PINNED_VERSION:
    raise ImportError(
        f"pysyncobj {VERSION} is installed, {PINNED_VERSION} is needed: private methods are overridden; "
        "compare them with the new version's, then move the pin"
    )

FOLLOWER, CANDIDATE, LEADER = _RAFT_STATE.FOLLOWER, _RAFT_STATE.CANDIDATE, _RAFT_STATE.LEADER
REGULAR, NO_OP, MEMBERS = b"\x00", b"\x01", b"\x04"
"""First byte of a command in the log: the application's, the entry that a new leader begins with, or a configuration
(configuration.py). PySyncObj's own kinds for members and versions (2, 3) are pickles; they are refused at every
entrance."""
KINDS = (REGULAR, NO_OP, MEMBERS)

UTILITY_MESSAGES = ("status", "add", "remove", "set_version", "transfer")

Clock = Callable[[], float]
"""Seconds from any origin, never backwards, counting while the process is stopped."""


class LogAdapter(Journal):
    """A `LogStore` under the names that PySyncObj calls. Those that only its replaced methods call raise
    NotImplementedError, as in its base class. Positions count from the first entry that the log holds."""

    def __init__(self, log: LogStore) -> None:
        self._log = log

    def add(self, command: bytes, idx: int, term: int) -> None:
        self._log.add(command, idx, term)

    @overload
    def __getitem__(self, item: int) -> Entry: ...
    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...
    def __getitem__(self, item: int | slice) -> Entry | list[Entry]:
        return self._log[item]

    def __len__(self) -> int:
        return len(self._log)

    def deleteEntriesFrom(self, entryFrom: int) -> None:
        if entryFrom < len(self._log):
            self._log.cut(self._log[entryFrom][1])

    def deleteEntriesTo(self, entryTo: int) -> None:
        if entryTo > 0:
            self._log.forget(self._log[0][1] + entryTo)

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:
        self._log.set_term(term, votedForNodeId)


class RaftCore(SyncObj):
    """PySyncObj without threads, sockets, clock, files and pickles. `use_log` comes before anything else."""

    log: LogStore

    def __init__(
        self,
        self_id: str,
        others: Iterable[str],
        *,
        transport: Transport,
        clock: Clock,
        rng: random.Random,
        timings: Timings,
        limits: Limits,
    ) -> None:
        # Before PySyncObj's constructor: it calls methods that we override.
        self.clock = clock
        self.rng = rng
        self.timings = timings
        self.limits = limits
        self.now = clock()
        self.peers: tuple[Node, ...] = tuple(Node(member) for member in sorted(others))
        conf = SyncObjConf(
            autoTick=False,
            useFork=False,
            dynamicMembershipChange=False,
            appendEntriesUseBatch=True,
            appendEntriesPeriod=timings.heartbeat,
            appendEntriesBatchSizeBytes=limits.batch_bytes,
            commandsQueueSize=limits.max_pending,
            commandsWaitLeader=False,
            raftMinTimeout=timings.election_min,
            raftMaxTimeout=2 * timings.election_min,
            leaderFallbackTimeout=2 * timings.election_min,
            connectionTimeout=2 * timings.election_min,
        )
        super().__init__(Node(self_id), self.peers, conf, transport=transport)
        for name in UTILITY_MESSAGES:
            transport.setOnUtilityMessageCallback(name, None)
        self.self_id = self_id
        self._SyncObj__raftElectionDeadline = self.now + self._SyncObj__generateRaftTimeout()

    def use_log(self, log: LogStore) -> None:
        """Work on `log` from here on."""
        self.log = log
        self._SyncObj__raftLog = LogAdapter(log)

    def __dir__(self) -> Iterable[str]:
        # PySyncObj's constructor evaluates every attribute that dir() lists, in search of methods to replicate. We have
        # no such methods, and our properties need a log.
        return super().__dir__() if "log" in self.__dict__ else ()

    # PySyncObj's state.
    @property
    def state(self) -> int:
        return self._SyncObj__raftState

    @property
    def term(self) -> int:
        return self._SyncObj__raftCurrentTerm

    @property
    def voted_for(self) -> str | None:
        return self._SyncObj__votedForNodeId

    @property
    def leader(self) -> Node | None:
        return self._SyncObj__raftLeader

    @leader.setter
    def leader(self, node: Node | None) -> None:
        self._SyncObj__raftLeader = node

    @property
    def commit_index(self) -> int:
        return self._SyncObj__raftCommitIndex

    @commit_index.setter
    def commit_index(self, index: int) -> None:
        self._SyncObj__raftCommitIndex = index

    @property
    def last_applied(self) -> int:
        return self._SyncObj__raftLastApplied

    @last_applied.setter
    def last_applied(self, index: int) -> None:
        self._SyncObj__raftLastApplied = index

    @property
    def election_deadline(self) -> float:
        return self._SyncObj__raftElectionDeadline

    @election_deadline.setter
    def election_deadline(self, moment: float) -> None:
        self._SyncObj__raftElectionDeadline = moment

    @property
    def next_index(self) -> dict[Node, int]:
        return self._SyncObj__raftNextIndex

    @property
    def match_index(self) -> dict[Node, int]:
        return self._SyncObj__raftMatchIndex

    @property
    def noop_index(self) -> int | None:
        """Index of the entry that this member began its newest term as leader with; None: it never led."""
        return self._SyncObj__noopIDx

    @property
    def connected(self) -> set[Node]:
        return self._SyncObj__connectedNodes

    @property
    def command_queue(self) -> FastQueue:
        """Proposed commands that are not in the log yet, with their callbacks."""
        return self._SyncObj__commandsQueue

    @property
    def waiting_for_commit(self) -> dict[int, list[tuple[int, Callable[[object, int], None]]]]:
        """Index -> (term, callback) of the commands proposed there; a missing index gives a new list."""
        return self._SyncObj__commandsWaitingCommit

    # PySyncObj's steps that run as they are.
    tick = SyncObj.doTick
    """Handle what has arrived and what is due, by `on_tick`."""
    queue_command = SyncObj._applyCommand
    """Put a command into `command_queue`."""
    entries_from = SyncObj._SyncObj__getEntries
    """Entries from an index on, up to a count and, beyond the first, a size in bytes."""
    delete_entries_from = SyncObj._SyncObj__deleteEntriesFrom
    delete_entries_to = SyncObj._SyncObj__deleteEntriesTo
    set_state = SyncObj._SyncObj__setState
    enter_leader_state = SyncObj._SyncObj__onBecomeLeader
    """Role, next and match index, the term's first entry, and a first round of `send_append_entries`."""
    mark_connected = SyncObj._SyncObj__onNodeConnected
    mark_disconnected = SyncObj._SyncObj__onNodeDisconnected

    # What these steps and the transport call: hooks of the subclasses.
    def on_tick(self) -> None:
        raise NotImplementedError

    def on_message(self, node: Node, message: object) -> None:
        raise NotImplementedError

    def on_connected(self, node: Node) -> None:
        raise NotImplementedError

    def on_disconnected(self, node: Node) -> None:
        raise NotImplementedError

    def send_append_entries(self) -> None:
        raise NotImplementedError

    def _onTick(self, timeToWait: float = 0.0) -> None:
        self.on_tick()

    def _SyncObj__onMessageReceived(self, node: Node, message: object) -> None:
        self.on_message(node, message)

    def _SyncObj__onNodeConnected(self, node: Node) -> None:
        self.on_connected(node)

    def _SyncObj__onNodeDisconnected(self, node: Node) -> None:
        self.on_disconnected(node)

    def _SyncObj__sendAppendEntries(self) -> None:
        self.send_append_entries()

    def _SyncObj__generateRaftTimeout(self) -> float:  # its own would not use `rng`
        return self.rng.uniform(1, 2) * self.timings.election_min

    # What would put pickled commands into the log.
    def addNodeToCluster(self, node: Node, callback: object = None) -> None:
        raise NotImplementedError("members change by change_members()")

    def removeNodeFromCluster(self, node: Node, callback: object = None) -> None:
        raise NotImplementedError("members change by change_members()")

    def setCodeVersion(self, newVersion: int, callback: object = None) -> None:
        raise NotImplementedError("commands carry their own version")

    def transferLeadership(self, node: Node | None = None, callback: object = None) -> None:
        raise NotImplementedError("use transfer()")

    # The log by index.
    @property
    def first_index(self) -> int:
        """Index of the oldest entry held: the base that everything after it is compared against."""
        return self.log[0][1]

    @property
    def last_index(self) -> int:
        return self.log[-1][1]

    @property
    def last_term(self) -> int:
        return self.log[-1][2]

    def term_at(self, index: int) -> int | None:
        """Term of the entry at `index`, None where the log does not hold it."""
        log = self.log
        position = index - log[0][1]
        return log[position][2] if 0 <= position < len(log) else None

    # Changes.
    def set_term(self, term: int, voted_for: str | None) -> None:
        """Change term and vote; on disk when this returns, before anything that rests on them can leave. Raises
        `DiskFullError`: nothing has changed."""
        if term < self.term or (term == self.term and self.voted_for not in (None, voted_for)):
            raise InvariantViolationError(
                f"term {self.term} with vote for {self.voted_for} cannot become term {term} with vote for {voted_for}"
            )
        before = self.term, self.voted_for
        try:
            self._SyncObj__setCurrentTerm(term, voted_for)
        except DiskFullError:  # PySyncObj has changed its own copy already
            self.restore_term(*before)
            raise

    def restore_term(self, term: int, voted_for: str | None) -> None:
        """Take over term and vote as they are on disk."""
        self._SyncObj__raftCurrentTerm = term
        self._SyncObj__votedForNodeId = voted_for

    def set_peers(self, peers: tuple[Node, ...]) -> None:
        """Talk to these members from here on."""
        self.peers = peers
        self._SyncObj__otherNodes = set(peers)

    def send(self, node: Node, message: object) -> None:
        self._SyncObj__transport.send(node, message)
