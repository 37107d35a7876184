"""Builds a replica's requests to its controllers. Pure; `session` and `identity` decide which, and when."""

from rocketmq_formats.broker_identity import AppliedIdentity
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    ElectMasterRequestHeader,
    GetNextBrokerIdRequestHeader,
    GetReplicaInfoRequestHeader,
    RegisterBrokerToControllerRequestHeader,
    SyncStateSet,
)
from rocketmq_sidecar.domain.actions import Request


def metadata(controller: str, now: float) -> Request:
    """1005, to any controller."""
    return Request(controller, RequestCode.CONTROLLER_GET_METADATA_INFO, now)


class Requests:
    """Fills in the group's names. `leader` is the controller to ask, `now` the time of sending."""

    def __init__(self, cluster_name: str, broker_name: str, *, strict: bool = False) -> None:
        self._cluster, self._name = cluster_name, broker_name
        self._strict = True if strict else None

    def next_id(self, leader: str, now: float) -> Request:
        """1012."""
        header = GetNextBrokerIdRequestHeader(cluster_name=self._cluster, broker_name=self._name)
        return Request(leader, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, now, header)

    def apply(self, leader: str, applied: AppliedIdentity, now: float) -> Request:
        """1013, with the check code that proves a repeated request."""
        header = ApplyBrokerIdRequestHeader(
            cluster_name=self._cluster,
            broker_name=self._name,
            applied_broker_id=applied.identity.broker_id,
            register_check_code=applied.register_check_code,
        )
        return Request(leader, RequestCode.CONTROLLER_APPLY_BROKER_ID, now, header)

    def register(self, leader: str, broker_id: int, address: str, now: float) -> Request:
        """1003, which also reports the present address."""
        header = RegisterBrokerToControllerRequestHeader(
            cluster_name=self._cluster, broker_name=self._name, broker_id=broker_id, broker_address=address
        )
        return Request(leader, RequestCode.CONTROLLER_REGISTER_BROKER, now, header)

    def elect(self, leader: str, broker_id: int, now: float) -> Request:
        """1002."""
        header = ElectMasterRequestHeader(
            cluster_name=self._cluster,
            broker_name=self._name,
            broker_id=broker_id,
            strict_durability=self._strict,
        )
        return Request(leader, RequestCode.CONTROLLER_ELECT_MASTER, now, header)

    def designate(self, leader: str, ids: tuple[int, ...], now: float) -> Request:
        """1002: elect one of these, or none, even while the master lives. Java's controllers only consider the
        first."""
        header = ElectMasterRequestHeader(
            cluster_name=self._cluster,
            broker_name=self._name,
            broker_id=ids[0],
            designate_elect=True,
            designate_among=",".join(map(str, ids)) if len(ids) > 1 else None,
        )
        return Request(leader, RequestCode.CONTROLLER_ELECT_MASTER, now, header)

    def replica_info(self, leader: str, now: float) -> Request:
        """1004."""
        header = GetReplicaInfoRequestHeader(broker_name=self._name)
        return Request(leader, RequestCode.CONTROLLER_GET_REPLICA_INFO, now, header)

    def sync_state_data(self, leader: str, now: float) -> Request:
        """1006."""
        return Request(leader, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, now, None, encode_body([self._name]))

    def alter(
        self, leader: str, broker_id: int, master_epoch: int, wanted: SyncStateSet, now: float, *, renew: bool = False
    ) -> Request:
        """1001; `wanted` carries the epoch of the set that it replaces. `renew`: it is that set, which gets a new
        epoch. Java's controllers refuse this (2013)."""
        header = AlterSyncStateSetRequestHeader(
            broker_name=self._name,
            master_broker_id=broker_id,
            master_epoch=master_epoch,
            renew_epoch=True if renew else None,
        )
        return Request(leader, RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, now, header, encode_body(wanted))
