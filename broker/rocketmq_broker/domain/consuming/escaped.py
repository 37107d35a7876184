"""Delayed messages that an acting slave sent to other groups: what is known of them, and where that counts.

They leave no record in the log. So each level has a fact (`Escaped`) that names the last one's record: it counts in a
log that has this very record, which then has all before it. A fact stays true and no tool resets it, so none is newer
than another: of two the one that reaches further into the log says more.

Used by `consumer_tables.py` and `delay_service.py`.
"""

import zlib
from collections.abc import Mapping

from rocketmq_formats.store.config_files import Escaped
from rocketmq_formats.store.message import Buffer


def one_more(known: Escaped | None, offset: int, place: int, record: Buffer) -> Escaped:
    """The fact once the message at the queue's `offset` has escaped. `record` is at `place` of the log. `known` counts
    in this log, or is None."""
    first = known.first if known is not None and known.next == offset else offset
    return Escaped(first, offset + 1, place, zlib.crc32(record))


def counts_for(fact: Escaped, offset: int) -> bool:
    """Whether a level whose next message is at `offset` may continue behind what escaped, if the fact counts."""
    return fact.first <= offset < fact.next


def is_record_of(fact: Escaped, place: int, record: Buffer) -> bool:
    """Whether `record`, at `place` of this log, is the last one that escaped: the fact counts here."""
    return place == fact.place and zlib.crc32(record) == fact.checksum


def joined(ours: Mapping[int, Escaped], theirs: Mapping[int, Escaped]) -> dict[int, Escaped]:
    """By level, the fact that reaches further into the log."""
    return {
        level: max((fact for fact in (ours.get(level), theirs.get(level)) if fact), key=lambda fact: fact.place)
        for level in ours.keys() | theirs.keys()
    }


def cut(facts: Mapping[int, Escaped], end: int) -> dict[int, Escaped]:
    """What counts in a log that is cut at `end`."""
    return {level: fact for level, fact in facts.items() if fact.place < end}
