"""A mandate without controllers (enableControllerMode=false): the configuration says for good which replica is master,
name servers say where it is. Pure; docs/architecture.md, "A group without controllers".

Source: rocketmq-all-5.3.3: BrokerStartup.java, BrokerController.java, BrokerPreOnlineService.java.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.replica_link import MAX_OTHERS, Others, Registered
from rocketmq_sidecar.domain.actions import Actions, SendToBroker
from rocketmq_sidecar.domain.controllers.lease import NEVER
from rocketmq_sidecar.domain.controllers.mandate import Mandate

MASTER_ID: Final = 0
EPOCH: Final = 1
"""Of role, link and tables. The log has epochs of its own (`mastership.begun_alone`)."""
PATIENCE: Final = 10.0
"""Seconds that name servers have to say who is in the group; then a replica continues without. Each silent one costs
its broker 3 s."""
_EXCHANGE: Final = "exchange brokerId and brokerRole with the slave that has the longest log"
_UNPROVEN: Final = (
    "this replica's log may lack what it had acknowledged: its machine lost power or was reset, its volume was taken"
    f" away from it, or the log is shorter than it was. Without controllers an operator decides: {_EXCHANGE}; or, to"
    " give up what is missing, stop the sidecar, delete .broker.boot and .broker.acked in storePathRootDir, start it"
)
_NOBODY: Mapping[int, str] = MappingProxyType({})


class FixedMandate(Mandate):
    """The replica with brokerId 0 is master, the others are its slaves."""

    def __init__(self, broker_id: int) -> None:
        super().__init__()
        self._broker_id = broker_id
        self._listed = _NOBODY
        """brokerId -> address, by a name server."""
        self._heard = False
        """A name server has answered this broker."""
        self._began = False
        """This replica was fit to be master, and stays it while its broker is connected."""
        self._named = False
        """The broker knows whom to ask for newer tables."""

    @property
    def broker_id(self) -> int:
        return self._broker_id

    @property
    def waits(self) -> str | None:
        if self.opened_at is None:
            return "the log has not been opened yet"
        if not self._heard and self._now < self.opened_at + PATIENCE:
            return "no name server has said yet who is in the group"
        return self._unfit

    @property
    def _unfit(self) -> str | None:
        """Why a master must not begin."""
        if self._broker_id != MASTER_ID or self._began:
            return None
        if (other := self._listed_master) is not None:
            return f"name servers list {other} with brokerId 0: stop it, or wait until they have forgotten it"
        return self.lost or self.reported_unproven

    @property
    def _listed_master(self) -> str | None:
        """The address of another broker that is listed as master."""
        address = self._listed.get(MASTER_ID)
        return None if address == self.address else address

    @property
    def lease_until(self) -> float:
        return float("inf") if self.is_master else NEVER

    @property
    def elects(self) -> bool:
        return False

    @property
    def vouched(self) -> bool:
        return self._listed_master is not None

    @property
    def remark(self) -> str | None:
        other = self._listed_master
        if not self._began or other is None:
            return None
        return f"name servers list {other} with brokerId 0 too: one of the two masters must be stopped"

    def close(self) -> None:
        super().close()
        self._listed = _NOBODY
        self._heard = self._began = self._named = False

    def on_log_opened(self, lost: str | None, unproven: str | None, now: float) -> None:
        if self._broker_id == MASTER_ID:
            lost = None if lost is None else f"{lost}. Without controllers: {_EXCHANGE}"
            unproven = None if unproven is None else _UNPROVEN
        super().on_log_opened(lost, unproven, now)

    def on_registered(self, registered: Registered) -> None:
        self._heard, self._listed = True, MappingProxyType(dict(registered.addresses))

    def on_proposal(self, wanted: SyncStateSet | None) -> None:
        """No one else counts on the set, so the master decides."""
        agreed = self.group.agreed
        if wanted is not None and wanted.sync_state_set_epoch == agreed.sync_state_set_epoch:
            self.group.agreed = SyncStateSet(
                sync_state_set=wanted.sync_state_set, sync_state_set_epoch=agreed.sync_state_set_epoch + 1
            )

    def standing_changed(self) -> None:
        """`waits` says it."""

    def on_master_lost(self, now: float) -> None:
        """It stays master."""

    def ask_again(self) -> None:
        """The configuration knows no other answer."""

    def designate(self, ids: tuple[int, ...]) -> None:
        """There are no elections."""

    def settle(self, now: float) -> None:
        super().settle(now)
        if self.waits is not None:
            return
        group = self.group
        group.master_epoch, group.master_id = EPOCH, MASTER_ID
        if self._broker_id != MASTER_ID:
            group.master_address = self._listed_master or group.master_address or ""
        elif not self._began:
            self._began, group.master_address = True, self.address
            epoch = group.agreed.sync_state_set_epoch + 1
            group.agreed = SyncStateSet(sync_state_set=frozenset({MASTER_ID}), sync_state_set_epoch=epoch)

    def wake_times(self) -> list[float | None]:
        return [None if self.opened_at is None else self.opened_at + PATIENCE]

    def next(self, begun: int | None) -> Actions:
        """Whom the broker of a master asks for newer tables, once."""
        if not self._began or self._named or begun == EPOCH:
            return ()
        self._named = True
        others = [address for _, address in sorted(self._listed.items()) if address != self.address]
        return (SendToBroker(Others(EPOCH, tuple(others)[:MAX_OTHERS])),)
