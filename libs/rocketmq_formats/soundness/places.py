"""Places in a commit log. All offsets are physical, in bytes; ends are exclusive."""

import msgspec


class Extent(msgspec.Struct, frozen=True, order=True):
    """Bytes `[start, end)` of a commit log."""

    start: int
    end: int

    @property
    def length(self) -> int:
        """In bytes, at least 0."""
        return max(self.end - self.start, 0)

    def meet(self, other: "Extent") -> "Extent":
        """The overlap; `length` is 0 without one."""
        return Extent(max(self.start, other.start), min(self.end, other.end))


class RecordName(msgspec.Struct, frozen=True, kw_only=True):
    """How people and tools identify a message; None where damage hides it."""

    physical_offset: int
    size: int
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    store_timestamp: int | None = None
    """Milliseconds since 1970."""
    keys: str | None = None
    unique_key: str | None = None
    """UNIQ_KEY, what clients call msgId."""
