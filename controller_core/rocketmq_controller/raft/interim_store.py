"""Stand-in for the store on disk, in memory only, until that is wired in; removed then."""

from rocketmq_controller.raft.settings import RaftSettings
from rocketmq_controller.raft.stores import Entry, LogStore, Snapshot, SnapshotStore


class _Log(list[Entry]):
    term = 0
    voted_for: str | None = None

    @property
    def durable_index(self) -> int:
        return self[-1][1] if self else 0

    def sync(self) -> None:
        pass

    def add(self, command: bytes, idx: int, term: int) -> None:
        self.append((command, idx, term))

    def deleteEntriesFrom(self, entryFrom: int) -> None:  # noqa: N802, N803 - PySyncObj's names
        del self[entryFrom:]

    def deleteEntriesTo(self, entryTo: int) -> None:  # noqa: N802, N803 - PySyncObj's names
        del self[:entryTo]

    def _destroy(self) -> None:
        pass

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:  # noqa: N802, N803 - PySyncObj's names
        self.term, self.voted_for = term, votedForNodeId

    def getCurrentTerm(self) -> int:  # noqa: N802 - PySyncObj's names
        return self.term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802 - PySyncObj's names
        return self.voted_for


class _Snapshots:
    newest: Snapshot | None = None

    def load(self) -> Snapshot | None:
        return self.newest

    def save(self, snapshot: Snapshot) -> None:
        self.newest = snapshot


class InterimStore:
    def __init__(self) -> None:
        self.journal: LogStore = _Log()
        self.snapshots: SnapshotStore = _Snapshots()

    def close(self) -> None:
        pass


def open_store(settings: RaftSettings) -> InterimStore:  # noqa: ARG001 - as the real one
    return InterimStore()
