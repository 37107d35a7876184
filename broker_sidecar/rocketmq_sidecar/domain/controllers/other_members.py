"""Whom the broker of a replica that was elected asks for newer tables (1006): the members that live, or may live, as a
new leading controller has not heard them yet. Pure; part of `session`.

In a strict group only those of the SyncStateSet: they have all that was acknowledged, an operator's reset too, so what
they hold may replace a whole table.

The controllers' answer is the one to use, because they have just dropped the master that died: asking a machine that is
switched off costs the broker's whole patience.
"""

from rocketmq_formats.json.bodies import decode_body
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.remoting.controller import BrokerReplicasInfo
from rocketmq_formats.replica_link import MAX_OTHERS, Others
from rocketmq_sidecar.domain.actions import Request
from rocketmq_sidecar.domain.controllers.group_state import GroupState
from rocketmq_sidecar.domain.controllers.request_slots import RequestSlot
from rocketmq_sidecar.domain.controllers.requests import Requests


class OtherMembers:
    """Asks once for each epoch that this replica has to begin."""

    def __init__(
        self, slot: RequestSlot, group: GroupState, requests: Requests, broker_name: str, *, strict: bool
    ) -> None:
        self.slot = slot
        self._strict = strict
        self._group = group
        self._requests = requests
        self._broker_name = broker_name
        self._known: int | None = None
        """The epoch that the broker has."""

    def forget(self) -> None:
        """The broker is gone: the next one knows nothing."""
        self._known = None

    def request(self, leader: str, begun: int | None, now: float) -> Request | None:
        """The request to `leader`, or None. `begun`: the epoch that is served already, which no answer helps any
        longer."""
        if self._group.master_epoch in {self._known, begun} or not self.slot.free(now):
            return None
        return self._requests.sync_state_data(leader, now)

    def on_answer(self, answer: RemotingCommand, broker_id: int | None, now: float) -> Others | None:
        """What to tell the broker of replica `broker_id`; None: the answer is of an earlier epoch.

        Raises:
            FormatError: it cannot be read.
        """
        info = decode_body(BrokerReplicasInfo, answer.body).replicas_info_table.get(self._broker_name)
        epoch = self._group.master_epoch
        if info is not None and info.master_epoch < epoch:
            self.slot.refused(now)
            return None
        self.slot.succeeded()
        self._known = epoch
        members = () if info is None else info.in_sync_replicas
        if info is not None and not self._strict:
            members = (*members, *info.not_in_sync_replicas)
        others = [member for member in members if member.broker_id != broker_id and member.broker_address]
        living = [member.broker_address for member in others if member.alive]
        perhaps = [member.broker_address for member in others if member.unheard and not member.alive]
        return Others(epoch, (*living, *perhaps)[:MAX_OTHERS])
