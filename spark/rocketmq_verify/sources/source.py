"""Where a replica's log is read from: its files, or its sidecar, with one interface.

Used by the driver for states and records, and by Spark's workers for digests: a source is opened where it is used, from
a name, a text and options, which can all be sent there.

    files:/data/broker-a-1/store      a storePathRootDir, or the commit log's folder in it
    sidecar:broker-a-1:10920          gRPC of its sidecar
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

import msgspec

from rocketmq_api.client_tls import ClientTls
from rocketmq_api.log_view import MAX_RANGE
from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.structure import Structure
from rocketmq_settings.verify import PATIENCE_SECONDS
from rocketmq_verify.domain.model import Chunk, ChunkDigest, ReplicaLog, ReplicaName

MAX_CHUNK: Final = MAX_RANGE
"""Longest chunk that is digested at once, in bytes."""
MOST_UNREADABLE: Final = 16
"""Chunks of one replica that cannot be read before nothing more of it is: a dying disk takes seconds for each."""
MAX_EXTENT: Final = 1 << 30
"""Longest extent that is read at once."""
FILES: Final = "files"
SIDECAR: Final = "sidecar"


UNSERVED: Final = "its sidecar is of an older release and cannot check its log; update it"


class SpecError(Exception):
    """The user's text does not name a log; the message says what would."""


def directory_of(spec: str) -> Path:
    """The directory of a `files:` place; `~` is the user's home."""
    return Path(spec.removeprefix(f"{FILES}:")).expanduser()


class SourceError(Exception):
    """The replica could not be read: nothing is known about it. The message names the replica and what to do."""

    def __init__(self, replica: ReplicaName, reason: str) -> None:
        super().__init__(f"{replica}: {reason}")
        self.replica, self.reason = replica, reason

    def __reduce__(self) -> tuple[type[Self], tuple[ReplicaName, str]]:
        return type(self), (self.replica, self.reason)  # it is pickled in Spark's workers


class GoneError(SourceError):
    """The replica can be read, but these bytes of it are not there (any longer)."""


class BrokenError(SourceError):
    """These bytes are there, and the replica's disk does not return them; others can be read."""


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a replica is read."""

    tls: ClientTls | None = None
    """For its sidecar; None: plaintext."""
    bytes_per_second: int = 0
    """Limit for one replica, in each process that reads it; 0: files without a limit, a sidecar as it is configured
    (verifyMaxBytesPerSecond)."""
    patience: float = PATIENCE_SECONDS
    """Seconds without any progress after which a sidecar counts as unreachable."""


class Source(Protocol):
    """One replica. Not thread-safe. Everything raises `SourceError`."""

    @property
    def name(self) -> ReplicaName: ...

    def describe(self) -> ReplicaLog:
        """Its log as it is now."""

    def digests(self, chunks: Sequence[Chunk]) -> Iterator[ChunkDigest]:
        """One for each chunk, in their order; a chunk has at most `MAX_CHUNK` bytes. At most `MOST_UNREADABLE` chunks
        that a broken disk does not return have an error."""

    def read(self, extent: Extent) -> bytes:
        """Those bytes, at most `MAX_EXTENT`.

        Raises:
            GoneError: they are not all there.
            BrokenError: they are.
        """

    def stream(self, extent: Extent) -> Iterator[memoryview]:
        """Those bytes in pieces, each valid until the next one is requested; an extent of any length.

        Raises:
            GoneError: the next ones are not there (any longer).
        """

    def structures(self, extent: Extent, until: int, segment_size: int) -> Iterator[Structure]:
        """Is `extent` a chain of sound records? In parts, ascending; nothing is read from `until` on. A part
        ends where bytes have expired."""

    def close(self) -> None:
        """Close files and connections."""


class Opened:
    """`with` for sources."""

    def close(self) -> None:
        """See `Source`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def check_chunks(chunks: Sequence[Chunk]) -> None:
    """Raises `ValueError` for chunks that no source accepts: a bug of the caller."""
    for chunk in chunks:
        if not (chunk.offset >= 0 and 0 <= chunk.length <= MAX_CHUNK):
            raise ValueError(f"a chunk of {chunk.length} bytes from {chunk.offset}")


def check_extent(extent: Extent) -> None:
    """Like `check_chunks`."""
    if not (extent.start >= 0 and extent.length <= MAX_EXTENT):
        raise ValueError(f"{extent.length} bytes from {extent.start}")
