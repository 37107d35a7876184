"""Where a replica's log is read from: its files, or its sidecar. What is above this module knows one way only.

Used by the driver for states and records, and by the workers of Spark for digests: a source is opened where it is used,
from a name, a text and options, all of which can be sent there.

    files:/data/broker-a-1/store      a storePathRootDir, or the commit log's folder in it
    sidecar:broker-a-1:10920          gRPC of its sidecar
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

import msgspec

from rocketmq_api.channels import ClientTls
from rocketmq_verify.domain.model import Chunk, ChunkDigest, Extent, ReplicaLog, ReplicaName

MAX_CHUNK: Final = 64 << 20
"""Longest chunk that is digested at once, in bytes."""
MAX_EXTENT: Final = 1 << 30
"""Longest extent that is read at once."""
FILES: Final = "files"
SIDECAR: Final = "sidecar"


class SpecError(Exception):
    """The user's text names nothing that could be read; says what would."""


class SourceError(Exception):
    """The replica could not be read: nothing is known about it. Names the replica and what to do."""

    def __init__(self, replica: ReplicaName, reason: str) -> None:
        super().__init__(f"{replica}: {reason}")
        self.replica, self.reason = replica, reason

    def __reduce__(self) -> tuple[type[Self], tuple[ReplicaName, str]]:
        return type(self), (self.replica, self.reason)  # it has to come back from Spark's workers


class GoneError(SourceError):
    """The replica can be read, but these bytes of it are not there (any more)."""


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a replica is read."""

    tls: ClientTls | None = None
    """For its sidecar; None: plaintext."""
    bytes_per_second: int = 0
    """Most that is read of one replica, by each process that reads it; 0: files without a limit, a sidecar as it is
    configured (verifyMaxBytesPerSecond)."""
    patience: float = 30.0
    """Seconds without any progress after which a sidecar counts as unreachable."""


class Source(Protocol):
    """One replica. Not thread-safe. Everything raises `SourceError`."""

    @property
    def name(self) -> ReplicaName: ...

    def describe(self) -> ReplicaLog:
        """Its log as it is now."""

    def digests(self, chunks: Sequence[Chunk]) -> Iterator[ChunkDigest]:
        """One for each chunk, in their order; a chunk has at most `MAX_CHUNK` bytes."""

    def read(self, extent: Extent) -> bytes:
        """Those bytes, `MAX_EXTENT` at most.

        Raises:
            GoneError: they are not all there.
        """

    def stream(self, extent: Extent) -> Iterator[memoryview]:
        """Those bytes in pieces, each good until the next one is asked for; an extent of any length.

        Raises:
            GoneError: the next ones are not there (any more).
        """

    def close(self) -> None:
        """Let go of files and connections."""


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


def open_source(name: ReplicaName, spec: str, options: SourceOptions | None = None) -> "Source":
    """The source that `spec` names; nothing is read or connected before it is asked.

    Raises:
        SpecError: `spec` is neither `files:DIRECTORY` nor `sidecar:HOST:PORT`, or a TLS file cannot be read.
    """
    kind, _, place = spec.partition(":")
    options = options or SourceOptions()
    if kind == FILES and place:
        from rocketmq_verify.file_source import FileSource  # noqa: PLC0415 - one kind needs not the other's imports

        return FileSource(name, Path(place).expanduser(), options)
    if kind == SIDECAR and _is_address(place):
        from rocketmq_verify.sidecar_source import SidecarSource  # noqa: PLC0415

        try:
            return SidecarSource(name, place, options)
        except OSError as error:
            raise SpecError(f"{name}: TLS: {error}") from error
    raise SpecError(f"{name}={spec}: give files:DIRECTORY or sidecar:HOST:PORT")


def check_chunks(chunks: Sequence[Chunk]) -> None:
    """Chunks that no source takes are a bug of the caller. Raises `ValueError`."""
    for chunk in chunks:
        if not (chunk.offset >= 0 and 0 <= chunk.length <= MAX_CHUNK):
            raise ValueError(f"a chunk of {chunk.length} bytes from {chunk.offset}")


def check_extent(extent: Extent) -> None:
    """As `check_chunks`."""
    if not (extent.start >= 0 and extent.length <= MAX_EXTENT):
        raise ValueError(f"{extent.length} bytes from {extent.start}")


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65536
