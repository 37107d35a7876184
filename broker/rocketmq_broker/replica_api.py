"""What controllers, replicas and tools ask about this replica: 906, 907, 1007, 1008.

906 and the bodies of 907 and 1007 come out of the role and of what the sidecar said last; 1008 goes on to the sidecar.
Source: name server reference, section 10.4; HA reference, section 11.
"""

from rocketmq_broker.domain.role import ReplicaRole, Role
from rocketmq_broker.front import Processor
from rocketmq_broker.replica import Replica
from rocketmq_formats.remoting.bodies import decode_body
from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.controller import NotifyBrokerRoleChangedRequestHeader, SyncStateSet
from rocketmq_formats.remoting.ha_info import ExchangeHAInfoHeader
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.replica_link import RoleNotice
from rocketmq_runtime.server import Answer, Peer
from rocketmq_store.message_store import MessageStore

NO_SIDECAR = "the sidecar is not connected"


class ReplicaApi:
    """The replica's face towards its group."""

    def __init__(
        self, *, role: ReplicaRole, replica: Replica, store: MessageStore, address: str, ha_address: str
    ) -> None:
        """`ha_address`: brokerIP2:haListenPort."""
        self._role = role
        self._replica = replica
        self._store = store
        self._address = address
        self._ha_address = ha_address

    @property
    def processors(self) -> dict[int, Processor]:
        """For `Front.register`."""
        return {
            RequestCode.EXCHANGE_BROKER_HA_INFO: self._exchange_ha_info,
            RequestCode.GET_BROKER_HA_STATUS: self._ha_status,
            RequestCode.GET_BROKER_EPOCH_CACHE: self._epochs,
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self._role_changed,
        }

    def _exchange_ha_info(self, request: RemotingCommand, _peer: Peer) -> Answer:
        """A master tells where to replicate from, a slave nothing. Who tells us about a master is not believed: the
        controllers decide."""
        header = ExchangeHAInfoHeader()
        if self._role.role is Role.MASTER:
            header = ExchangeHAInfoHeader(
                master_ha_address=self._ha_address,
                master_flush_offset=self._store.flushed_offset,
                master_address=self._address,
            )
        return response(request, ResponseCode.SUCCESS, None, header)

    def _ha_status(self, request: RemotingCommand, _peer: Peer) -> Answer:
        status = self._replica.status
        if status is None:
            return response(request, ResponseCode.SYSTEM_ERROR, NO_SIDECAR)
        return response(request, ResponseCode.SUCCESS, None, None, status.ha)

    def _epochs(self, request: RemotingCommand, _peer: Peer) -> Answer:
        status = self._replica.status
        if status is None:
            return response(request, ResponseCode.SYSTEM_ERROR, NO_SIDECAR)
        return response(request, ResponseCode.SUCCESS, None, None, status.epochs)

    def _role_changed(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(NotifyBrokerRoleChangedRequestHeader, request.ext_fields or {})
        members = decode_body(SyncStateSet, request.body) if request.body else None
        self._replica.role_notice(
            RoleNotice(header.master_broker_id, header.master_address, header.master_epoch, members)
        )
        return response(request, ResponseCode.SUCCESS)
