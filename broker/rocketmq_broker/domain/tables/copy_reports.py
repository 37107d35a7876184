"""Which reports about copied tables (COPY_TABLES) a master believes. Pure.

A change is acknowledged when the slaves report it, and the reports come to the port that every client can reach. So a
master listens only to replicas that it waits for, or is about to; believes nothing that it has not sent; and where the
group has a secret it asks for a proof. What it does not believe takes no memory.
"""

from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import NamedTuple

import msgspec

from rocketmq_formats.replica_link import CopyKey
from rocketmq_formats.table_copies import NOTHING, CopyTablesRequestHeader, is_copy_proof


class Serials(NamedTuple):
    """Changes of each table since the start."""

    topics: int
    groups: int
    offsets: int

    def reaches(self, other: "Serials") -> bool:
        return self.topics >= other.topics and self.groups >= other.groups and self.offsets >= other.offsets


NO_COPY = Serials(NOTHING, NOTHING, NOTHING)


class Doubt(StrEnum):
    """Why a report is refused; the text goes to its sender."""

    OUTSIDER = "not a replica that is in the SyncStateSet or about to enter it"
    UNPROVEN = "no proof that a replica of the group sends this: give all its replicas the same haReplicationSecretFile"
    AHEAD = "it reports changes that this master has not made"
    PAST_EPOCH = "this master has not begun the epoch in which the slave follows it"
    """What others reported before the epochs between may not be there any longer, so nothing may be added to it."""


class Mastership(msgspec.Struct, frozen=True):
    """What a master knows when a report comes."""

    token: str
    serials: Serials
    replicas: AbstractSet[int]
    """Broker ids of the SyncStateSet, and of those about to enter it, without the master's own."""
    key: CopyKey | None
    epoch: int


def held_by(report: CopyTablesRequestHeader, nonce: str, master: Mastership) -> Serials | Doubt:
    """What the slave holds of this mastership's tables, or why that is not believed. `nonce` is that of the connection
    which the report came over."""
    if report.broker_id not in master.replicas:
        return Doubt.OUTSIDER
    key = master.key
    if key is not None and (report.proof or key.required) and not is_copy_proof(key.key, nonce, report):
        return Doubt.UNPROVEN
    if report.epoch > master.epoch:
        return Doubt.PAST_EPOCH
    if report.token != master.token:
        return NO_COPY
    held = Serials(report.topics, report.groups, report.offsets)
    return held if master.serials.reaches(held) else Doubt.AHEAD
