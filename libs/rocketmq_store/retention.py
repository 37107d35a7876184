"""Which files of the log are deleted, and whether the disk still accepts writes: pure rules over sizes and times.

As in Java, a file is expired `fileReservedTime` hours after its last change; expired files are
deleted in the hours of deleteWhen, and at any hour above diskMaxUsedSpaceRatio. At diskSpaceCleanForciblyRatio the
oldest are deleted unexpired, a few at a time; at diskSpaceWarningLevelRatio writes are refused, while there is still
room for the log line about it. The last file always stays. Used by message_store.py.
Source: rocketmq-all-5.3.3: DefaultMessageStore.java.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from rocketmq_store.model import StoreSettings

MAX_AT_ONCE: Final = 10
"""Files deleted in one round (deleteFileBatchMax)."""
_MS_PER_HOUR: Final = 3_600_000


class LogFile(msgspec.Struct, frozen=True):
    end: int
    """Offset behind its last byte."""
    modified_ms: int


def delete_before(
    files: Sequence[LogFile], settings: StoreSettings, *, used_ratio: float, keep_from: int, now_ms: int, hour: int
) -> int:
    """The files that end at or before the returned offset are to be deleted, 0 for none.

    `files`: all, oldest first. `used_ratio`: of the disk, 0 to 1. `keep_from`: nothing at or behind this offset goes
    (what is not dispatched or confirmed yet). `hour`: of the local day.
    """
    forced = used_ratio >= settings.disk_clean_ratio
    due = forced or used_ratio * 100 > settings.disk_max_used_ratio or hour in hours(settings.delete_when)
    if not due:
        return 0
    expiry = now_ms - settings.file_reserved_hours * _MS_PER_HOUR
    offset = 0
    for file in files[: min(MAX_AT_ONCE, len(files) - 1)]:
        if file.end > keep_from or not (forced or file.modified_ms < expiry):
            break
        offset = file.end
    return offset


def hours(delete_when: str) -> set[int]:
    """`04` or `04;16` as hours; raises ValueError."""
    words = [word.strip() for word in delete_when.split(";")]
    if not all(word.isascii() and word.isdecimal() and len(word) <= 2 and int(word) <= 23 for word in words):
        raise ValueError(f"deleteWhen: hours from 0 to 23 with `;` between them, not {delete_when!r}")
    return {int(word) for word in words}
