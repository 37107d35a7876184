from collections.abc import Callable, Iterable

from pysyncobj.config import SyncObjConf
from pysyncobj.fast_queue import FastQueue
from pysyncobj.journal import Journal
from pysyncobj.node import Node
from pysyncobj.transport import Transport

_Callback = Callable[[object, int], None]

class _RAFT_STATE:
    FOLLOWER: int
    CANDIDATE: int
    LEADER: int

class _COMMAND_TYPE:
    REGULAR: int
    NO_OP: int
    MEMBERSHIP: int
    VERSION: int

class SyncObj:
    _SyncObj__otherNodes: set[Node]
    _SyncObj__connectedNodes: set[Node]
    _SyncObj__raftState: int
    _SyncObj__raftCurrentTerm: int
    _SyncObj__votedForNodeId: str | None
    _SyncObj__raftLeader: Node | None
    _SyncObj__raftElectionDeadline: float
    _SyncObj__raftLog: Journal
    _SyncObj__raftCommitIndex: int
    _SyncObj__raftLastApplied: int
    _SyncObj__raftNextIndex: dict[Node, int]
    _SyncObj__raftMatchIndex: dict[Node, int]
    _SyncObj__noopIDx: int | None
    _SyncObj__commandsQueue: FastQueue
    _SyncObj__commandsWaitingCommit: dict[int, list[tuple[int, _Callback]]]
    _SyncObj__transport: Transport
    def __init__(
        self,
        selfNode: Node,
        otherNodes: Iterable[Node],
        conf: SyncObjConf | None = None,
        *,
        transport: Transport | None = None,
    ) -> None: ...
    def doTick(self, timeToWait: float = 0.0) -> None: ...
    def _onTick(self, timeToWait: float = 0.0) -> None: ...
    def _applyCommand(self, command: bytes, callback: _Callback | None, commandType: int | None = None) -> None: ...
    def transferLeadership(self, node: Node | None = None, callback: _Callback | None = None) -> None: ...
    def addNodeToCluster(self, node: Node, callback: _Callback | None = None) -> None: ...
    def removeNodeFromCluster(self, node: Node, callback: _Callback | None = None) -> None: ...
    def setCodeVersion(self, newVersion: int, callback: _Callback | None = None) -> None: ...
    def _SyncObj__generateRaftTimeout(self) -> float: ...
    def _SyncObj__onMessageReceived(self, node: Node, message: object) -> None: ...
    def _SyncObj__sendAppendEntries(self) -> None: ...
    def _SyncObj__onBecomeLeader(self) -> None: ...
    def _SyncObj__onNodeConnected(self, node: Node) -> None: ...
    def _SyncObj__onNodeDisconnected(self, node: Node) -> None: ...
    def _SyncObj__setState(self, newState: int) -> None: ...
    def _SyncObj__setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None: ...
    def _SyncObj__getEntries(
        self, fromIDx: int, count: int | None = None, maxSizeBytes: int | None = None
    ) -> list[tuple[bytes, int, int]]: ...
    def _SyncObj__deleteEntriesFrom(self, fromIDx: int) -> None: ...
    def _SyncObj__deleteEntriesTo(self, toIDx: int) -> None: ...
