"""Storage twins in memory, for tests of the machine that are not about disks: what was not synced is lost by
`crash`."""

from rocketmq_controller.raft.stores import Entry, Snapshot


class MemoryLog:
    """A LogStore. `synced` is what a crash would leave."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.synced: list[Entry] = []
        self.term = 0
        self.voted_for: str | None = None
        self.syncs = 0
        self.timer_calls = 0
        self._durable_index = 0

    @property
    def durable_index(self) -> int:
        return self._durable_index

    def sync(self) -> None:
        self.syncs += 1
        self.synced = list(self.entries)
        self._durable_index = self.entries[-1][1] if self.entries else 0

    def onOneSecondTimer(self) -> None:  # noqa: N802 - PySyncObj's name
        self.timer_calls += 1

    def crash(self) -> "MemoryLog":
        """What a restarted process would find."""
        found = MemoryLog()
        found.entries, found.term, found.voted_for = list(self.synced), self.term, self.voted_for
        found.sync()
        return found

    def add(self, command: bytes, idx: int, term: int) -> None:
        assert not self.entries or idx == self.entries[-1][1] + 1
        self.entries.append((command, idx, term))

    def clear(self) -> None:
        self.entries = []
        self._durable_index = 0

    def deleteEntriesFrom(self, entryFrom: int) -> None:  # noqa: N802, N803 - PySyncObj's names
        del self.entries[entryFrom:]
        self._durable_index = min(self._durable_index, self.entries[-1][1])

    def deleteEntriesTo(self, entryTo: int) -> None:  # noqa: N802, N803 - PySyncObj's names
        self.entries = self.entries[entryTo:]

    def __getitem__(self, item):
        return self.entries[item]

    def __len__(self) -> int:
        return len(self.entries)

    def _destroy(self) -> None:
        pass

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:  # noqa: N802, N803 - PySyncObj's names
        pass

    def getRaftCommitIndex(self) -> int:  # noqa: N802 - PySyncObj's names
        return 1

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:  # noqa: N802, N803 - PySyncObj's names
        self.term, self.voted_for = term, votedForNodeId

    def getCurrentTerm(self) -> int:  # noqa: N802 - PySyncObj's names
        return self.term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802 - PySyncObj's names
        return self.voted_for


class MemorySnapshots:
    """A SnapshotStore."""

    def __init__(self) -> None:
        self.newest: Snapshot | None = None

    def load(self) -> Snapshot | None:
        return self.newest

    def save(self, snapshot: Snapshot) -> None:
        self.newest = snapshot
