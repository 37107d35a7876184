"""The state of one replica's log from its files: identity, epochs, confirm offset, first and last offset.

For the `files` way of verifying and for the sidecar beside an Apache broker. The owner may run during that: it
appends, rolls, expires and cuts. Epochs count only if they were equal before and after the walk to the log's end.
Source: rocketmq-all-5.3.3: CommitLog.java, StoreCheckpoint.java, EpochFileCache.java.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from rocketmq_commitlog.errors import SmallFileError, UnreadableError
from rocketmq_commitlog.folder import LogFolder
from rocketmq_commitlog.log_end import find_end
from rocketmq_formats import broker_identity
from rocketmq_formats.broker_identity import BrokerIdentity, IdentityError, decode_identity
from rocketmq_formats.store import checkpoint, epoch_file, given_up
from rocketmq_formats.store.checkpoint import CheckpointError, decode_checkpoint
from rocketmq_formats.store.epoch_file import EpochFileError, EpochList, decode_epochs
from rocketmq_formats.store.given_up import GivenUp, GivenUpError, decode_given_up

COMMIT_LOG: Final = "commitlog"
NATIVE_IDENTITY: Final = ".broker.meta"
TRIES: Final = 5
"""Looks at small files that change, or are being written, before they are taken as they are."""
PAUSE: Final = 0.02
"""Seconds between such looks: Java writes them in place."""


class LogPaths(msgspec.Struct, frozen=True, kw_only=True):
    """Where a replica keeps what is read here."""

    commit_log: Path
    epoch_file: Path
    checkpoint: Path
    given_up: Path
    identities: tuple[Path, ...]
    """The first that is there counts."""

    @classmethod
    def of(cls, directory: Path) -> "LogPaths":
        """Of a storePathRootDir, or of the commit log's folder in it."""
        inside = directory / COMMIT_LOG
        root = directory.parent if directory.name == COMMIT_LOG and not inside.is_dir() else directory
        return cls.in_root(root)

    @classmethod
    def in_root(cls, root: Path, *, commit_log: Path | None = None, epochs: Path | None = None) -> "LogPaths":
        """Of a storePathRootDir, where some may be elsewhere."""
        return cls(
            commit_log=commit_log or root / COMMIT_LOG,
            epoch_file=epochs or root / epoch_file.FILE_NAME,
            checkpoint=root / checkpoint.FILE_NAME,
            given_up=root / given_up.FILE_NAME,
            identities=(root / NATIVE_IDENTITY, root / broker_identity.FILE_NAME),
        )


class LogState(msgspec.Struct, frozen=True, kw_only=True):
    """One replica's log as its files describe it. Offsets are physical, ends exclusive."""

    broker_id: int | None
    """None without an identity file."""
    group: str = ""
    """`clusterName/brokerName` of that file."""
    min_offset: int
    confirm_offset: int
    """As the replica has noted it; `max_offset` where it has noted nothing. More than `max_offset` if it lost what it
    had: there are only zeros, or no file, from there on."""
    max_offset: int
    """End of the last whole record; of what is confirmed, if that lies behind and there are bytes (damaged ones, or a
    part of a record)."""
    segment_size: int
    """0 without files."""
    segments: tuple[int, ...]
    short: tuple[tuple[int, int], ...] = ()
    """Files that are shorter than `segment_size`: start, length."""
    epochs: EpochList
    given_up: tuple[GivenUp, ...] = ()
    """What the replica had acknowledged and no master has had since, until an operator deletes the note."""


def read_state(
    paths: LogPaths, *, segment_size: int | None = None, sleep: Callable[[float], None] = time.sleep
) -> LogState:
    """The state now; reads everything behind the confirm offset (without one: the last file).

    Raises:
        NotALogError: no commit log, or files that cannot be one replica's.
        SmallFileError: the epoch file and its backup, or the note of lost messages, cannot be understood.
        UnreadableError: rights, a broken disk.
    """
    with LogFolder(paths.commit_log, segment_size=segment_size) as log:
        before = read_epochs(paths, sleep)
        for _ in range(TRIES - 1):
            state = _read_once(paths, log, sleep)
            if state.epochs == before:
                return state
            before = state.epochs
        return _read_once(paths, log, sleep)


def _read_once(paths: LogPaths, log: LogFolder, sleep: Callable[[float], None]) -> LogState:
    # The confirm offset first: what it names was in the files before it was written.
    confirmed = _confirmed(paths)
    log.refresh()
    end = find_end(log, confirmed)
    identity, epochs = _identity(paths), read_epochs(paths, sleep)
    return LogState(
        broker_id=None if identity is None else identity.broker_id,
        group="" if identity is None else f"{identity.cluster_name}/{identity.broker_name}",
        min_offset=log.min_offset,
        confirm_offset=max(confirmed, log.min_offset) if confirmed else end,
        max_offset=end,
        segment_size=log.segment_size,
        segments=tuple(log.segments),
        short=log.short,
        epochs=epochs,
        given_up=_given_up(paths, epochs, end),
    )


def read_epochs(paths: LogPaths, sleep: Callable[[float], None] = time.sleep) -> EpochList:
    """The file, or its backup while it is missing or damaged; neither is there: no epochs.

    Raises:
        SmallFileError: neither can be understood.
        UnreadableError: rights, a broken disk.
    """
    path = paths.epoch_file
    backup = path.with_name(path.name + ".bak")
    problem: EpochFileError | None = None
    for _ in range(TRIES):
        data = _small(path, epoch_file.MAX_LENGTH)
        if data is None:
            break
        try:
            return decode_epochs(data)
        except EpochFileError as error:
            problem = error
        sleep(PAUSE)
    data = _small(backup, epoch_file.MAX_LENGTH)
    try:
        if data is not None:
            return decode_epochs(data)
    except EpochFileError as error:
        problem = problem or error
    if problem is not None:
        raise SmallFileError(path, f"damaged, and no backup that is not ({problem}): rebuild this replica")
    return EpochList()


def _confirmed(paths: LogPaths) -> int:
    """0 where nothing is noted."""
    data = _small(paths.checkpoint, checkpoint.SIZE)
    try:
        return 0 if data is None else max(decode_checkpoint(data).confirm_offset, 0)
    except CheckpointError:
        return 0


def _given_up(paths: LogPaths, epochs: EpochList, end: int) -> tuple[GivenUp, ...]:
    data = _small(paths.given_up, given_up.MAX_LENGTH)
    try:
        noted = () if data is None else decode_given_up(data).given_up
    except GivenUpError as error:
        raise SmallFileError(
            paths.given_up, f"damaged ({error}): read what it says of lost messages, then delete it"
        ) from error
    return tuple(left for one in noted if (left := one.left(epochs, end)) is not None)


def _identity(paths: LogPaths) -> BrokerIdentity | None:
    for path in paths.identities:
        data = _small(path, broker_identity.MAX_LENGTH)
        if data is not None:
            try:
                return decode_identity(data)
            except IdentityError:
                return None
    return None


def _small(path: Path, limit: int) -> bytes | None:
    """At most `limit` bytes and one; None: there is no such file."""
    try:
        with path.open("rb") as file:
            return file.read(limit + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UnreadableError(path, f"cannot be read: {error.strerror or error}") from error
