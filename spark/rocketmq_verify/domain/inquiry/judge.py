"""Which copy of a differing record is right. Called with a record's bytes as every replica has them.

The evidence, the strongest first:
1. the checksum over the whole record, where brokers write one (enabledAppendPropCRC; off by default);
2. the record's structure: magic, its own place, lengths that add up; and the checksum of its body. A copy that fails is
   wrong, even if most replicas have it so;
3. of copies that pass, the ledger: a copy in a cell that is what an earlier run read;
4. without it, what most replicas have: header fields, topic and properties have no checksum by default.
If two copies pass and equally many replicas have each, the result is that it is unknown.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import IntEnum
from typing import Final

from rocketmq_formats.store.message import MAGIC_BLANK, Blank, Record, RecordError, RecordFault, read_record
from rocketmq_formats.store.record_crc import check_record_crc
from rocketmq_verify.domain.findings import Copy
from rocketmq_verify.domain.inquiry.compare import Groups, grouped
from rocketmq_verify.domain.inquiry.narrow import first_difference
from rocketmq_verify.domain.model import ReplicaName

HEX_BYTES: Final = 64
_LEAD: Final = 16
"""Bytes of the context in front of the first difference."""


class Standing(IntEnum):
    """The evidence for a copy by itself."""

    BROKEN = 0
    SOUND = 1
    SEALED = 2
    """The checksum over the whole record is right."""


def judge(
    contents: Mapping[ReplicaName, bytes],
    start: int,
    size: int,
    compared: int,
    *,
    old: tuple[ReplicaName, ...] | None = None,
) -> tuple[Copy, ...]:
    """The copies of the record or blank at `start`, ascending by replica.

    Args:
        contents: the bytes from `start` on as each replica has them, `compared` or more; the bytes beyond
            `size` show whether a copy is a whole record of another size.
        size: of the record, as most copies that are whole have it.
        compared: bytes from `start` on that have to be equal; less than `size` where the compared range ends within.
        old: those whose copy is what an earlier run read (`by_the_ledger`); None: it does not decide.
    """
    groups = grouped({replica: data[:compared] for replica, data in contents.items()})
    checks = {replica: _check(data, start, size) for replica, data in contents.items()}
    standings = [max(checks[replica][0] for replica in group) for group in groups]
    best = max(standings)
    leading = _leading(groups, standings)
    right = _right(leading, best)
    at = _context_start(contents, groups, compared)
    copies = []
    for group, standing in zip(groups, standings, strict=True):
        for replica in group:
            verdict = right == group if right is not None or standing is not best or best is Standing.BROKEN else None
            reason = _reason(verdict, checks[replica][1], group, leading if best is not Standing.BROKEN else ())
            if old is not None:
                verdict = group == old
                reason = f"{checks[replica][1]}, {'as' if verdict else 'not as'} an earlier run read it"
            copies.append(
                Copy(
                    replica=replica,
                    right=verdict,
                    reason=reason,
                    hex_offset=start + at,
                    hex=bytes(contents[replica][at : at + HEX_BYTES]).hex(),
                )
            )
    return tuple(sorted(copies, key=lambda copy: copy.replica))


def by_the_ledger(
    contents: Mapping[ReplicaName, bytes],
    start: int,
    size: int,
    compared: int,
    *,
    as_before: AbstractSet[ReplicaName],
) -> tuple[ReplicaName, ...] | None:
    """Those of these copies (see `judge`) that are what an earlier run read; None: it is not known, or others stand
    better: it was damaged already."""
    groups = grouped({replica: data[:compared] for replica, data in contents.items()})
    found = [group for group in groups if as_before & set(group)]
    if len(found) != 1:
        return None
    standings = {replica: _check(data, start, size)[0] for replica, data in contents.items()}
    return found[0] if max(standings[one] for one in found[0]) is max(standings.values()) else None


def is_counted(contents: Mapping[ReplicaName, bytes], start: int, size: int, compared: int) -> bool:
    """Whether of these copies (see `judge`) only the number of replicas decides: two and more contents pass all checks,
    and most replicas could have the same wrong one."""
    groups = grouped({replica: data[:compared] for replica, data in contents.items()})
    return len(_leading(groups, [max(_check(contents[one], start, size)[0] for one in group) for group in groups])) > 1


def _leading(groups: Groups, standings: Sequence[Standing]) -> list[tuple[ReplicaName, ...]]:
    best = max(standings)
    return [group for group, standing in zip(groups, standings, strict=True) if standing is best]


def _right(leading: Sequence[tuple[ReplicaName, ...]], best: Standing) -> tuple[ReplicaName, ...] | None:
    if best is Standing.BROKEN:
        return None
    if len(leading) == 1 or len(leading[0]) > len(leading[1]):
        return leading[0]
    return None


def _reason(
    verdict: bool | None,  # noqa: FBT001 - the copy's own field
    check: str,
    group: tuple[ReplicaName, ...],
    leading: Sequence[tuple[ReplicaName, ...]],
) -> str:
    if group not in leading or len(leading) == 1:
        return check
    if verdict is None:
        return f"{check}, but also in {_others(leading, group)}, which differs: it is unknown which is right"
    if verdict:
        return f"{check}, and most replicas have this copy: {_names(group)}"
    return f"{check}, but most replicas have another copy"


def _others(leading: Sequence[tuple[ReplicaName, ...]], group: tuple[ReplicaName, ...]) -> str:
    return _names(tuple(replica for other in leading if other != group for replica in other))


def _names(replicas: Sequence[ReplicaName]) -> str:
    return ", ".join(sorted(replicas))


def _context_start(contents: Mapping[ReplicaName, bytes], groups: Groups, compared: int) -> int:
    first = contents[groups[0][0]]
    found = [first_difference(first[:compared], contents[group[0]][:compared]) for group in groups[1:]]
    difference = min((at for at in found if at is not None), default=0)
    return max(difference - _LEAD, 0)


def _check(data: bytes, start: int, size: int) -> tuple[Standing, str]:
    """The evidence in the copy itself."""
    if len(data) < size:
        return Standing.SOUND, "only its beginning is confirmed"
    try:
        found = read_record(data, 0, len(data), check_crc=True)
    except RecordError as error:
        return Standing.BROKEN, _fault(error.fault, data, size)
    if isinstance(found, Blank):
        return (Standing.SOUND if found.size == size else Standing.BROKEN), f"a blank of {found.size} bytes"
    return _check_record(data, found, start)


def _check_record(data: bytes, found: Record, start: int) -> tuple[Standing, str]:
    if found.physical_offset != start:
        return Standing.BROKEN, f"its own offset field has {found.physical_offset}"
    try:
        if check_record_crc(data, found):
            return Standing.SEALED, "record CRC right"
    except RecordError:
        return Standing.SOUND, "record CRC wrong"
    return Standing.SOUND, "body CRC right" if found.body_length else "lengths right, no body"


def _fault(fault: RecordFault, data: bytes, size: int) -> str:
    stated = int.from_bytes(data[:4], "big", signed=True)
    if not any(data[:size]):
        return "nothing but zeros"
    if fault is RecordFault.CRC:
        return "body CRC wrong"
    if fault is RecordFault.MAGIC:
        return "no record starts here: its magic is wrong"
    if stated != size and int.from_bytes(data[4:8], "big") != MAGIC_BLANK:
        return f"its size field has {stated} bytes, not {size}"
    return "its lengths do not add up"
