"""The requests an agent makes of its controllers, filled in. Pure; `machine` decides which one, and when."""

from rocketmq_demo.agent.actions import Ask, Heartbeat
from rocketmq_demo.agent.settings import AgentSettings
from rocketmq_formats.broker_identity import AppliedIdentity
from rocketmq_formats.remoting.bodies import encode_body
from rocketmq_formats.remoting.codes import RequestCode
from rocketmq_formats.remoting.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    BrokerHeartbeatRequestHeader,
    ElectMasterRequestHeader,
    GetNextBrokerIdRequestHeader,
    GetReplicaInfoRequestHeader,
    RegisterBrokerToControllerRequestHeader,
    SyncStateSet,
)


class Questions:
    """Fills in the agent's own names."""

    def __init__(self, settings: AgentSettings) -> None:
        self._cluster, self._name = settings.cluster_name, settings.broker_name
        self._address = settings.address
        self._controllers = settings.controllers
        self._heartbeat_timeout_mills = int(settings.timing.heartbeat_timeout * 1000)

    def metadata(self, controller: str) -> Ask:
        """1005, to any controller."""
        return Ask(controller, RequestCode.CONTROLLER_GET_METADATA_INFO)

    def next_id(self, leader: str) -> Ask:
        header = GetNextBrokerIdRequestHeader(cluster_name=self._cluster, broker_name=self._name)
        return Ask(leader, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header)

    def apply(self, leader: str, applied: AppliedIdentity) -> Ask:
        header = ApplyBrokerIdRequestHeader(
            cluster_name=self._cluster,
            broker_name=self._name,
            applied_broker_id=applied.identity.broker_id,
            register_check_code=applied.register_check_code,
        )
        return Ask(leader, RequestCode.CONTROLLER_APPLY_BROKER_ID, header)

    def register(self, leader: str, own_id: int) -> Ask:
        header = RegisterBrokerToControllerRequestHeader(
            cluster_name=self._cluster, broker_name=self._name, broker_id=own_id, broker_address=self._address
        )
        return Ask(leader, RequestCode.CONTROLLER_REGISTER_BROKER, header)

    def elect(self, leader: str, own_id: int) -> Ask:
        header = ElectMasterRequestHeader(cluster_name=self._cluster, broker_name=self._name, broker_id=own_id)
        return Ask(leader, RequestCode.CONTROLLER_ELECT_MASTER, header)

    def replica_info(self, leader: str) -> Ask:
        header = GetReplicaInfoRequestHeader(broker_name=self._name)
        return Ask(leader, RequestCode.CONTROLLER_GET_REPLICA_INFO, header)

    def alter(self, leader: str, own_id: int, master_epoch: int, wanted: SyncStateSet) -> Ask:
        """1001; `wanted` carries the epoch of the set that is to be replaced."""
        header = AlterSyncStateSetRequestHeader(
            broker_name=self._name, master_broker_id=own_id, master_epoch=master_epoch
        )
        return Ask(leader, RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, encode_body(wanted))

    def heartbeat(self, own_id: int, data_epoch: int, max_offset: int) -> Heartbeat:
        """904, to all; `data_epoch` is the epoch of the last data, -1 without any."""
        header = BrokerHeartbeatRequestHeader(
            cluster_name=self._cluster,
            broker_addr=self._address,
            broker_name=self._name,
            broker_id=own_id,
            epoch=data_epoch,
            max_offset=max_offset,
            confirm_offset=max_offset,
            heartbeat_timeout_mills=self._heartbeat_timeout_mills,
        )
        return Heartbeat(self._controllers, header)
