"""The seam to PySyncObj: its private members under readable names, and nothing of it left that reads clocks or dice.

PySyncObj 0.3.17 carries the log, roles, terms and votes; what it gets wrong is overridden in the modules above this
one, by its private (name-mangled) method names. `elections` -> `replication` -> `snapshots` -> `machine` form one line
of subclasses of `Seam`, one concern each. The version is pinned here and the source of everything relied on is pinned
in a test, so an upgrade is loud.
"""

import random
from collections.abc import Callable, Iterable
from typing import cast

from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.journal import Journal
from pysyncobj.node import Node
from pysyncobj.syncobj import _RAFT_STATE
from pysyncobj.transport import Transport
from pysyncobj.version import VERSION

from rocketmq_controller.raft.errors import InvariantViolationError
from rocketmq_controller.raft.settings import Limits, Timings
from rocketmq_controller.raft.stores import LogStore

PINNED_VERSION = "0.3.17"
if VERSION != PINNED_VERSION:
    raise ImportError(
        f"pysyncobj {VERSION} is installed, {PINNED_VERSION} is needed: private methods are overridden; "
        "compare them with the new version's, then move the pin"
    )

FOLLOWER, CANDIDATE, LEADER = _RAFT_STATE.FOLLOWER, _RAFT_STATE.CANDIDATE, _RAFT_STATE.LEADER
REGULAR, NO_OP = b"\x00", b"\x01"
"""First byte of a command in the log: the application's, or the entry a new leader begins with. PySyncObj's other kinds
(membership, version) are pickles; they are refused wherever they could come in."""

UTILITY_MESSAGES = ("status", "add", "remove", "set_version", "transfer")

Clock = Callable[[], float]
"""Seconds from anywhere, never backwards, going on while the process is stopped."""


class Seam(SyncObj):
    """PySyncObj without threads, sockets, clock, files, pickles and changes of membership."""

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
        # Before the constructor: it calls methods that we override.
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
            raftMaxTimeout=timings.election_max,
            leaderFallbackTimeout=timings.election_max,
            connectionTimeout=timings.election_max,
        )
        super().__init__(Node(self_id), self.peers, conf, transport=transport)
        for name in UTILITY_MESSAGES:
            transport.setOnUtilityMessageCallback(name, None)
        self.member_count = len(self.peers) + 1
        self.self_id = self_id
        self._SyncObj__raftElectionDeadline = self.now + self._SyncObj__generateRaftTimeout()

    # PySyncObj's state by readable names.
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
    def log(self) -> LogStore:
        return cast("LogStore", self._SyncObj__raftLog)

    @log.setter
    def log(self, log: LogStore) -> None:
        self._SyncObj__raftLog = cast("Journal", log)

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
    def connected(self) -> set[Node]:
        return self._SyncObj__connectedNodes

    # The log by index.
    @property
    def first_index(self) -> int:
        """Index of the oldest entry held: the base that everything after it is compared against."""
        return self._SyncObj__raftLog[0][1]

    @property
    def last_index(self) -> int:
        return self._SyncObj__raftLog[-1][1]

    @property
    def last_term(self) -> int:
        return self._SyncObj__raftLog[-1][2]

    def term_at(self, index: int) -> int | None:
        """Term of the entry at `index`, None where the log does not hold it."""
        log = self._SyncObj__raftLog
        position = index - log[0][1]
        return log[position][2] if 0 <= position < len(log) else None

    def set_term(self, term: int, voted_for: str | None) -> None:
        """Change term and vote; on disk when this returns, before anything that rests on them can leave."""
        if term < self.term or (term == self.term and self.voted_for not in (None, voted_for)):
            raise InvariantViolationError(
                f"term {self.term} with vote for {self.voted_for} cannot become term {term} with vote for {voted_for}"
            )
        self._SyncObj__setCurrentTerm(term, voted_for)

    def send(self, node: Node, message: object) -> None:
        self._SyncObj__transport.send(node, message)

    # What would read the clock or roll dice behind our back.
    def _generate_timeout(self) -> float:
        return self.rng.uniform(self.timings.election_min, self.timings.election_max)

    _SyncObj__generateRaftTimeout = _generate_timeout

    # What must not be reachable: pickled commands.
    def addNodeToCluster(self, node: Node, callback: object = None) -> None:  # noqa: N802 - PySyncObj's name
        raise NotImplementedError("members change by restarting with another configuration")

    def removeNodeFromCluster(self, node: Node, callback: object = None) -> None:  # noqa: N802 - PySyncObj's name
        raise NotImplementedError("members change by restarting with another configuration")

    def setCodeVersion(self, newVersion: int, callback: object = None) -> None:  # noqa: N802, N803 - PySyncObj's name
        raise NotImplementedError("commands carry their own version")
