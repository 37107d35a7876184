"""What a slave holds of a master's table that it copies in parts. Pure.

A part has the keys that changed first, with their present values. So a slave that is at a change number has each key
that did not change after it. A key that changes again before its part comes moves to a later one: of such a key the
slave lacks the earlier change, too, although it is at a later number. So a slave holds all changes up to a number only
with a part after which nothing is left to copy.
"""

from rocketmq_formats.table_copies import NOTHING


class PartCopy:
    """Of one table at one slave, in one mastership. Parts may not arrive, and the slave may begin again."""

    def __init__(self) -> None:
        self._held = NOTHING
        self._complete = NOTHING
        """Where the last part leads that leaves nothing to copy, unless one from before it was sent later."""
        self._begun: int | None = None
        """The first change whose removals are known, at the start of an unfinished copy of the whole table."""
        self._first: int | None = None
        """Where its first part leads, if that was the last one sent."""

    def reported(self, at: int, changes: int) -> int:
        """The slave is at number `at`, and the table at `changes`. Returns the number up to which it holds all."""
        if at == changes:
            self._complete = at
        if at < self._held:  # it has lost what it had, or copies the whole table
            self._held = NOTHING
        if at >= self._complete:
            self._held = max(self._held, self._complete)
        return self._held

    def begun(self, at: int) -> int | None:
        """The first change whose removals were known when the slave, which is at `at`, began its copy of the whole
        table; None: it has not begun one, or the first part did not arrive."""
        return self._begun if self._first is None or self._first == at else None

    def sent(self, at: int, until: int, changes: int, *, begins: bool, floor: int) -> None:
        """A part leads the slave from `at` to `until`; `begins`: it is the first one of the whole table."""
        if at < self._complete:
            self._complete = NOTHING
        if begins:
            self._begun = floor
        self._first = until if begins else None
        if until == changes:
            self._begun = self._first = None
            self._complete = until
