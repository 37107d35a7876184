"""Names in a store's directory: `{root}/commitlog/00000000001073741824`, `{root}/consumequeue/{topic}/{queueId}/...`.

The commit log and every consume queue are rows of files of one size; each is named by the offset of its first byte.
Source: rocketmq-all-5.3.3: MappedFileQueue.java, UtilAll.java.
"""

from typing import Final

from rocketmq_formats.errors import FormatError

CONSUME_QUEUE: Final = "consumequeue"
ABORT: Final = "abort"
"""There from start to clean shutdown; its text is the process id."""
LOCK: Final = "lock"

_DIGITS: Final = 20
_MAX_OFFSET: Final = 2**63 - 1
_MAX_QUEUE_ID: Final = 65_535


class SegmentNameError(FormatError):
    """A name that RocketMQ gives no file; leave such files alone."""


def segment_name(offset: int) -> str:
    """Name of the file whose first byte is at `offset`, at least 0."""
    if not 0 <= offset <= _MAX_OFFSET:
        raise SegmentNameError(f"not an offset of a file: {offset}")
    return f"{offset:020d}"


def segment_offset(name: str, *, file_size: int | None = None) -> int:
    """Offset of the first byte of the file `name`.

    Raises:
        SegmentNameError: not 20 digits, beyond i64, or with `file_size` not a multiple of it.
    """
    if len(name) != _DIGITS or not (name.isascii() and name.isdecimal()) or (offset := int(name)) > _MAX_OFFSET:
        raise SegmentNameError(f"not the name of a file of the store: {name[:80]!r}")
    if file_size is not None and offset % file_size:
        raise SegmentNameError(f"{name} does not start where a file of {file_size} bytes could")
    return offset


def is_segment_name(name: str) -> bool:
    """Whether a file of the log or of a consume queue can have this name."""
    try:
        segment_offset(name)
    except SegmentNameError:
        return False
    return True


def queue_id_of(name: str) -> int:
    """The queue whose directory is called `name`.

    Raises:
        SegmentNameError: not a plain number from 0 to 65535.
    """
    if not (name.isascii() and name.isdecimal() and len(name) <= 5 and str(queue_id := int(name)) == name):
        raise SegmentNameError(f"not the directory of a queue: {name[:80]!r}")
    if queue_id > _MAX_QUEUE_ID:
        raise SegmentNameError(f"queue {queue_id}: more than {_MAX_QUEUE_ID}")
    return queue_id
