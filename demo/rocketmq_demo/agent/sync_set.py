"""Who is in sync, as the master of one epoch sees it. Pure: `now` is monotonic seconds.

A slave is in sync while it reports to its master. Java looks at acknowledged offsets and gives a slave 15 s
(haMaxTimeSlaveNotCatchup); without a log, having reported in this epoch stands for having caught up.
"""

from collections.abc import Iterable

import msgspec

from rocketmq_formats.remoting.codes import RequestCode
from rocketmq_formats.remoting.controller import SyncStateSet


class SyncSet:
    """The set the controllers agreed to, and who was heard of since. Changes only when the controllers say so."""

    def __init__(self, own_id: int, agreed: SyncStateSet, now: float) -> None:
        """`agreed` as it was when this broker became master; its members get time to report."""
        self.agreed = agreed
        self._own_id = own_id
        self._heard = dict.fromkeys(agreed.sync_state_set - {own_id}, now)

    def adopt(self, agreed: SyncStateSet) -> bool:
        """Take what the controllers agreed to; False if it is not newer."""
        if agreed.sync_state_set_epoch <= self.agreed.sync_state_set_epoch:
            return False
        self.agreed = agreed
        return True

    def heard(self, broker_id: int, now: float) -> None:
        """A slave reported in this epoch."""
        if broker_id != self._own_id:
            self._heard[broker_id] = now

    def lost(self, broker_id: int) -> None:
        """A slave's connection was closed."""
        self._heard.pop(broker_id, None)

    def forgive(self, now: float) -> None:
        """We did not listen until now: silence meanwhile proves nothing."""
        self._heard = dict.fromkeys(self._heard, now)

    def wanted(self, now: float, timeout: float) -> frozenset[int]:
        """This broker, and every slave heard of within `timeout` seconds."""
        return frozenset({self._own_id, *(one for one, at in self._heard.items() if now - at <= timeout)})


class View(msgspec.Struct, frozen=True):
    """Who is master, as a controller put it in some answer or notice; no `master_id` if the group has none."""

    source: RequestCode
    master_epoch: int
    master_id: int | None
    master_address: str | None
    agreed: SyncStateSet


def sync_state_set(members: Iterable[int], epoch: int) -> SyncStateSet:
    """A set with its epoch."""
    return SyncStateSet(sync_state_set=frozenset(members), sync_state_set_epoch=epoch)
