"""Which offsets were committed at a slave while it acted as master, and how a master takes them over. Pure.

A table's version tells only how far the masters' changes have come to it. The acting slave's commits are none of them,
and the master that was cut off may have gone on: the two tables have a common past, and no counter says which one is
newer. So the acting slave leaves the version alone and records each commit with what the queue had `before`. A master
takes over these queues only, as one joins two changes of one text:

* where it still has what was there before, it takes the commit, higher or lower;
* an offset that went back (an operator's reset) wins over one that did not; of two, the lower one wins;
* otherwise the higher one wins, as in Java: either says that the group has consumed everything before it.

So a reset is not undone, and consumers may get messages again, but miss none. What the master has removed stays so.
What it took over once it does not take over again: the group has gone on from there.
"""

from collections.abc import Mapping
from typing import Final

from rocketmq_formats.store.config_files import NEVER, ActingCommit, ActingCommits
from rocketmq_formats.topics import DataVersion

MAX_ACTING: Final = 20_000
"""Queues that are recorded; of others consumers get messages again."""
ACTING_BYTES: Final = 40 * MAX_ACTING
"""Of a full record as JSON, with some queues of each key."""
MAX_TAKEN: Final = 2 * MAX_ACTING
"""Commits that a master remembers to have taken over; the oldest are forgotten. Some 15 MB."""


class ActingRecord:
    """The commits of a slave while it acted, until a master has them."""

    def __init__(self) -> None:
        self._base = DataVersion()
        self._commits: dict[str, dict[int, ActingCommit]] = {}
        self._count = 0
        self._heights: dict[tuple[str, int], int] = {}
        """Of queues that went back, by key and id: from where. Of this process alone."""
        self.changes = 0
        """Grows with each change of the record."""

    @property
    def commits(self) -> ActingCommits | None:
        """None: no commits."""
        if not self._commits:
            return None
        return ActingCommits(base=self._base, commits={key: tuple(of.values()) for key, of in self._commits.items()})

    def load(self, commits: ActingCommits | None) -> None:
        """Take over what a file kept."""
        self.clear()
        if commits is not None:
            self._base = commits.base
            self._commits = {key: {commit.queue_id: commit for commit in of} for key, of in commits.commits.items()}
            self._count = sum(map(len, self._commits.values()))

    def clear(self) -> None:
        """A master has them."""
        if self._commits:
            self._commits, self._count = {}, 0
            self._heights.clear()
            self.changes += 1

    def note(self, key: str, queue_id: int, offset: int, before: int | None, version: DataVersion) -> None:
        """A group has committed `offset` of a queue whose offset was `before`, in a table of `version`."""
        known = self._commits.get(key, {}).get(queue_id)
        if before == offset or (known is None and self._count >= MAX_ACTING):
            return
        if not self._commits:
            self._base = version
        if known is None:
            self._count += 1
            known = ActingCommit(queue_id, offset, NEVER if before is None else before)
        reset = self._is_reset(key, known, offset, before)
        self._commits.setdefault(key, {})[queue_id] = known._replace(offset=offset, reset=reset)
        self.changes += 1

    def _is_reset(self, key: str, known: ActingCommit, offset: int, before: int | None) -> bool:
        """Whether the queue went back and has not come to where it was again."""
        queue = (key, known.queue_id)
        if before is not None and offset < before:
            self._heights[queue] = max(before, self._heights.get(queue, NEVER))
            return True
        height = self._heights.get(queue)
        if height is None or offset < height:
            return known.reset
        del self._heights[queue]
        return False

    def is_from_here(self, key: str, queue_id: int, offset: int) -> bool:
        """Whether the table has this offset by a commit of the record."""
        known = self._commits.get(key, {}).get(queue_id)
        return known is not None and known.offset == offset


class TakenCommits:
    """What a master has taken over from acting slaves. A slave tells it again if it does not know that a master has
    it, and then it may be far behind: the group has gone on."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, DataVersion, ActingCommit], None] = {}

    def is_new(self, key: str, base: DataVersion, commit: ActingCommit) -> bool:
        """Whether this commit was not taken over yet; from now on it was."""
        taken = (key, base, commit)
        if taken in self._taken:
            return False
        self._taken[taken] = None
        if len(self._taken) > MAX_TAKEN:
            del self._taken[next(iter(self._taken))]
        return True

    def clear(self) -> None:
        """Another broker's table has taken the place of what they were joined to."""
        self._taken.clear()


def without(table: Mapping[str, Mapping[int, int]], acting: ActingCommits) -> Mapping[str, Mapping[int, int]]:
    """The slave's table as it copied it: where it has a commit, what was there before."""
    copied = dict(table)
    for key in table.keys() & acting.commits.keys():
        queues = copied[key] = dict(table[key])
        for commit in acting.commits[key]:
            if queues.get(commit.queue_id) == commit.offset:
                if commit.before == NEVER:
                    del queues[commit.queue_id]
                else:
                    queues[commit.queue_id] = commit.before
    return copied


def joined(own: int | None, commit: ActingCommit, *, reset: bool) -> int | None:
    """The offset of a queue at a master that has `own` and hears of `commit`; None: none. `reset`: `own` went back,
    or may have gone back, later than the acting slave copied it."""
    if own is None:
        return commit.offset if commit.before == NEVER else None
    if reset or own < commit.before:
        return min(own, commit.offset) if commit.reset else own
    if own == commit.before or commit.reset:
        return commit.offset
    return max(own, commit.offset)
