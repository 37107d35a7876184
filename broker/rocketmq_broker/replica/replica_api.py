"""Requests of controllers, replicas and tools about this replica: 906, 907, 1007, 1008.

906 and the bodies of 907 and 1007 come from the role and the sidecar's last message. The sidecar is notified of 1008,
but its content is not passed on: any client can send it, so the sidecar asks the controllers (see `RoleNotice`).
Source: rocketmq-all-5.3.3: AdminBrokerProcessor.java, ExchangeHAInfoRequestHeader.java, HARuntimeInfo.java.
"""

from rocketmq_broker.domain.role import ReplicaRole, Role
from rocketmq_broker.processor_table import Processor
from rocketmq_broker.replica.replica import Replica
from rocketmq_broker.settings import BrokerSettings
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.ha_info import ExchangeHAInfoHeader, GroupName, other_group
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_runtime.remoting.server import Answer, Peer
from rocketmq_store.message_store import MessageStore

NO_SIDECAR = "the sidecar is not connected"


class ReplicaApi:
    def __init__(
        self,
        *,
        settings: BrokerSettings,
        role: ReplicaRole,
        replica: Replica,
        store: MessageStore,
        address: str,
        ha_address: str,
    ) -> None:
        """`ha_address`: brokerIP2:haListenPort."""
        self._settings = settings
        self._role = role
        self._replica = replica
        self._store = store
        self._address = address
        self._ha_address = ha_address

    @property
    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.EXCHANGE_BROKER_HA_INFO: self._exchange_ha_info,
            RequestCode.GET_BROKER_HA_STATUS: self._ha_status,
            RequestCode.GET_BROKER_EPOCH_CACHE: self._epochs,
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self._role_changed,
        }

    def _exchange_ha_info(self, request: RemotingCommand, _peer: Peer) -> Answer:
        """A master returns where to replicate from, a slave nothing. A native replica of another group is refused. What
        the request says about a master is ignored: the controllers decide."""
        group = GroupName(self._settings.broker_cluster_name, self._settings.name)
        foreign = other_group(group, decode_header(ExchangeHAInfoHeader, request.ext_fields or {}))
        if foreign is not None:
            return response(request, ResponseCode.INVALID_PARAMETER, f"who asks cannot be a slave here: {foreign}")
        header = ExchangeHAInfoHeader()
        if self._role.role is Role.MASTER:
            header = ExchangeHAInfoHeader(
                master_ha_address=self._ha_address,
                master_flush_offset=self._store.flushed_offset,
                master_address=self._address,
                log_audit=True,
                ha_introduction=True,
                mapped_file_size_commit_log=self._settings.mapped_file_size_commit_log,
                enable_controller_mode=None if self._settings.enable_controller_mode else False,
                group_settings=self._replica.named_settings,
                cluster_name=group.cluster_name,
                broker_name=group.broker_name,
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
        self._replica.role_notice()
        return response(request, ResponseCode.SUCCESS)
