"""Storage twins in memory, for tests of the machine that are not about disks: what was not synced is lost by
`crash`."""

from rocketmq_controller.raft.ports import Entry, Snapshot, Standing


class MemoryLog:
    """A LogStore. `synced` is what a crash would leave."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.synced: list[Entry] = []
        self.term = 0
        self.voted_for: str | None = None
        self.syncs = 0
        self.timer_calls = 0
        self.promised = 0.0
        self.standing = Standing(bytes(16), voter=True)
        self.reports = b""
        self._durable_index = 0

    @property
    def durable_index(self) -> int:
        return self._durable_index

    def sync(self) -> None:
        self.syncs += 1
        self.synced = list(self.entries)
        self._durable_index = self.entries[-1][1] if self.entries else 0

    def sync_mark(self) -> None:
        self.timer_calls += 1

    def crash(self) -> "MemoryLog":
        """What a restarted process would find."""
        found = MemoryLog()
        found.entries, found.term, found.voted_for = list(self.synced), self.term, self.voted_for
        found.promised, found.standing, found.reports = self.promised, self.standing, self.reports
        found.sync()
        return found

    def add(self, command: bytes, index: int, term: int) -> None:
        assert not self.entries or index == self.entries[-1][1] + 1
        self.entries.append((command, index, term))

    def clear(self) -> None:
        self.entries = []
        self._durable_index = 0

    def cut(self, index: int) -> None:
        del self.entries[index - self.entries[0][1] :]
        self._durable_index = min(self._durable_index, index - 1)

    def forget(self, index: int) -> None:
        self.entries = self.entries[index - self.entries[0][1] :]

    def __getitem__(self, item):
        return self.entries[item]

    def __len__(self) -> int:
        return len(self.entries)

    commit_index = 1
    """It forgets the commit index, as a store may."""

    def set_commit_index(self, index: int) -> None:
        pass

    def set_term(self, term: int, voted_for: str | None) -> None:
        self.term, self.voted_for = term, voted_for

    def promise(self, seconds: float) -> None:
        self.promised = seconds

    def keep_reports(self, reports: bytes, *, durable: bool) -> bool:
        self.reports = reports
        return True

    def set_standing(self, standing: Standing) -> None:
        self.standing = standing


class MemorySnapshots:
    """A SnapshotStore."""

    def __init__(self) -> None:
        self.newest: Snapshot | None = None

    def load(self) -> Snapshot | None:
        return self.newest

    def save(self, snapshot: Snapshot) -> None:
        self.newest = snapshot
