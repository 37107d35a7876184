"""Where a store is, and whether two places are one: by another path, a link, or files that both have. For the command
line.

Only what this machine can read is compared. A copy has other files, and is found by its identity.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from rocketmq_commitlog.state import LogPaths
from rocketmq_formats.store.segment_names import SegmentNameError, segment_offset
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.sources.source import SpecError, directory_of
from rocketmq_verify.sources.work import Place


def check_stores(places: Iterable[Place]) -> None:
    """Raises `SpecError` for two places with one store; the text names both."""
    seen: dict[tuple[int, int], ReplicaName] = {}
    for place in places:
        if not place.has_files:
            continue
        try:
            for key in set(_keys(directory_of(place.spec))):
                if (other := seen.setdefault(key, place.name)) != place.name:
                    raise SpecError(f"{other} and {place.name} are the same store: a log always agrees with itself")
        except OSError:
            continue  # it shows when it is read, which may be on another machine


def store_of(place: Place) -> Path:
    """The storePathRootDir of a place with files, also where it names the commit log's folder."""
    return LogPaths.of(directory_of(place.spec)).commit_log.parent


def _keys(directory: Path) -> Iterator[tuple[int, int]]:
    """Device and inode of the commit log's folder, and of its files, where links lead."""
    folder = LogPaths.of(directory).commit_log
    status = folder.stat()
    yield status.st_dev, status.st_ino
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(SegmentNameError, FileNotFoundError):  # not a file of the log; expired at this moment
                segment_offset(entry.name)
                if entry.is_file():
                    file = entry.stat()
                    yield file.st_dev, file.st_ino
