"""Which records a crash left incomplete, where no checksum covers them. Pure. Used by commit_log.py.

Checksums cover bodies only, and a record may come from an official master or from an old store, so the content
that producers wrote proves nothing: zeros in a property are legal there. A record counts as torn only if it looks as
its *writer* never leaves one:

* A process that was killed leaves the beginning of a record, and zeros from there on. Every writer ends a record with
  a property's 0x02 or with its topic's name, never with a zero (rocketmq-all-5.3.3: MessageDecoder.java).
* A power cut takes sectors, or their ends: zeros up to a multiple of `SECTOR` in the file.

Neither counts where the next record is whole, and the second only after the machine has rebooted. Records of this
project's brokers have no zeros in topic and properties (they refuse such messages), so they are always judged right.
`__CRC32#` would not add anything for them, and is not reliable for others: any producer can send a wrong one through an
official master.
"""

import enum
from typing import Final

from rocketmq_formats.store.message import Record

SECTOR: Final = 512


class Crash(enum.Enum):
    """What may have happened to the writer of a record."""

    NONE = "its writer continued"
    KILLED = "its writer may have died"
    POWER = "the machine may have lost power"


class Doubt(enum.Enum):
    NONE = "a whole record"
    ENDS = "zeros at its end"
    HOLE = "zeros up to the end of a sector"


def doubt_of(record: Record, end: int) -> Doubt:
    """What is odd about a record that ends at `end`, an offset of its file."""
    topic, properties = record.topic, record.properties
    if 0 not in properties and 0 not in topic:
        return Doubt.NONE
    if (properties or topic)[-1] == 0:
        return Doubt.ENDS
    properties_start = end - len(properties)
    if _zero_before_edge(properties, properties_start) or _zero_before_edge(topic, properties_start - 2 - len(topic)):
        return Doubt.HOLE
    return Doubt.NONE


def is_torn(doubt: Doubt, crash: Crash, end: int, *, followed: bool) -> bool:
    """`end`: as in `doubt_of`. `followed`: the next record, or the blank that closes the file, begins there."""
    match doubt:
        case Doubt.NONE:
            return False
        case Doubt.ENDS:
            # elsewhere the zeros would cover the head of the next record too
            return crash is not Crash.NONE and (not followed or (crash is Crash.POWER and end % SECTOR == 0))
        case Doubt.HOLE:
            return crash is Crash.POWER and not followed


def _zero_before_edge(data: bytes, start: int) -> bool:
    """Whether `data`, which begins at `start`, has a zero where a sector ends."""
    return 0 in data[(-start - 1) % SECTOR :: SECTOR]
