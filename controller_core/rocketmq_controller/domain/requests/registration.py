"""Identities of brokers: getNextBrokerId (1012), applyBrokerId (1013), registerBroker (1003).

A broker that comes up asks for the next id, takes it with a check code that it has written down before (so that it
may ask again after a crash), and from then on registers with that id at every start.

Differs from 5.3.3:
- IdentityForever: only nextBrokerId can be taken (2014 otherwise, as Java refuses an id that is taken: a broker
  asks for the next id again). Java lets any unassigned number be taken (one that was cleaned, too) and adds one
  whatever was taken, so one request can use up a group's numbers. After the cleaning of a whole set Java begins at 1
  again; here the numbers continue.
- A request that names another cluster than the group's is refused (2005): Java lets a broker of any cluster become a
  member of the group that has its brokerName. After the cleaning of a whole set the next broker brings the cluster.
- Names, check codes and addresses with a `#` are refused (2005): brokers keep their identity as text split at it.
- An id without a successor in 64 bits is refused (2014).
- Groups (maxBrokerGroups) and their members are bounded (2), and one host gets at most as much of each as it leaves
  to others (`room`): requests for an id are not authenticated, and an id is given forever.
- A master that registers has been restarted unless the request comes over the connection of its heartbeats: its role
  is declared vacant and the answer names no master, so the broker asks for an election and gets a new epoch. Java
  answers it with its own old epoch if its entry has not run out yet, and the restarted broker then begins that epoch
  a second time, at another offset. No epoch is used for it; the member of the syncStateSet with the longest log wins.
"""

from msgspec.structs import replace

from rocketmq_controller.domain import events
from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.model import (
    FIRST_BROKER_ID,
    MAX_BROKER_ID,
    BrokerGroup,
    BrokerId,
    LivenessView,
    presumed_alive,
)
from rocketmq_controller.domain.requests.identity import foreign_cluster
from rocketmq_controller.domain.room import NO_GROUPS, Room
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.controller import (
    ApplyBrokerIdRequestHeader,
    ApplyBrokerIdResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
    SyncStateSet,
)
from rocketmq_formats.shares import why_not

MAX_REPLICAS = 100
"""Members of one group at the same time: requests take time that grows with them."""
SEPARATOR = "#"
"""Splits `clusterName#brokerName#brokerId` and `...#checkCode` in brokers' identity files, unescaped."""


def get_next_broker_id(group: BrokerGroup | None, request: GetNextBrokerIdRequestHeader) -> Decision:
    """The id to apply for; nothing is reserved. Codes: 0, 2005."""
    header = GetNextBrokerIdResponseHeader(cluster_name=request.cluster_name, broker_name=request.broker_name)
    remark = _unusable(clusterName=request.cluster_name, brokerName=request.broker_name)
    remark = remark or foreign_cluster(group, request.cluster_name)
    if remark is not None:
        return Decision(ResponseCode.CONTROLLER_INVALID_REQUEST, remark, header)
    next_broker_id = FIRST_BROKER_ID if group is None else group.next_broker_id
    return Decision(
        ResponseCode.SUCCESS,
        None,
        GetNextBrokerIdResponseHeader(
            cluster_name=request.cluster_name, broker_name=request.broker_name, next_broker_id=next_broker_id
        ),
    )


def apply_broker_id(
    group: BrokerGroup | None,
    request: ApplyBrokerIdRequestHeader,
    *,
    room: Room = NO_GROUPS,
    host: str = "",
) -> Decision:
    """Codes: 0 (also for a repeated request with the same check code), 2005, 2014; 2 if there are too many already.

    `room`: cleaned groups take some of it, as they remember which ids were given. `host`: where the request came from,
    "" if it is unknown or cannot be recorded.
    """
    header = ApplyBrokerIdResponseHeader(cluster_name=request.cluster_name, broker_name=request.broker_name)
    address = request.register_check_code.partition(";")[0]
    remark = _unusable(
        clusterName=request.cluster_name, brokerName=request.broker_name, registerCheckCode=request.register_check_code
    )
    remark = remark or foreign_cluster(group, request.cluster_name)
    if remark is None and not address:
        remark = "registerCheckCode does not begin with an address"
    if remark is not None:
        return Decision(ResponseCode.CONTROLLER_INVALID_REQUEST, remark, header)

    broker_id = BrokerId(request.applied_broker_id)
    if group is None:
        if broker_id != FIRST_BROKER_ID:
            remark = (
                f"Broker-set: {request.broker_name} hasn't been registered in controller,"
                f" but broker try to apply brokerId: {broker_id}"
            )
            return Decision(ResponseCode.CONTROLLER_BROKER_ID_INVALID, remark, header)
    else:
        header = replace(header, former_broker_ids=_former_ids(group, broker_id, address))
        replica = group.replicas.get(broker_id)
        if replica is not None and replica.register_check_code == request.register_check_code:
            return Decision(ResponseCode.SUCCESS, None, header)
        if broker_id != group.next_broker_id or broker_id >= MAX_BROKER_ID:
            remark = f"Fail to apply brokerId: {broker_id} in broker-set: {request.broker_name}"
            return Decision(ResponseCode.CONTROLLER_BROKER_ID_INVALID, remark, header)
    remark = _no_room(group, room, host)
    if remark is not None:
        return Decision(ResponseCode.SYSTEM_BUSY, remark, header)
    event = events.ApplyBrokerId(
        request.broker_name, request.cluster_name, address, broker_id, request.register_check_code, host
    )
    return Decision(ResponseCode.SUCCESS, None, header, None, (event,))


def register_broker(
    group: BrokerGroup | None,
    request: RegisterBrokerToControllerRequestHeader,
    view: LivenessView,
    *,
    connection_id: int | None = None,
) -> Decision:
    """Codes: 0 with the master if there is a live one, and the syncStateSet in any case; 2005; 2010 to be registered.

    `connection_id` is where the request came from, as in the heartbeat table; None if unknown: a master is then taken
    for restarted. The table must not have this request yet.
    """
    header = RegisterBrokerToControllerResponseHeader(
        cluster_name=request.cluster_name, broker_name=request.broker_name
    )
    remark = _unusable(
        clusterName=request.cluster_name, brokerName=request.broker_name, brokerAddress=request.broker_address
    )
    remark = remark or foreign_cluster(group, request.cluster_name)
    if remark is not None:
        return Decision(ResponseCode.CONTROLLER_INVALID_REQUEST, remark, header)
    if group is None or not group.replicas:
        remark = f"Broker-set: {request.broker_name} hasn't been registered in controller"
        return Decision(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, remark, header)
    broker_id = BrokerId(request.broker_id)
    if broker_id not in group.replicas:
        remark = f"BrokerId: {broker_id} hasn't been registered in broker-set: {request.broker_name}"
        return Decision(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, remark, header)

    made: list[events.Event] = []
    if request.broker_address != group.address_of(broker_id):
        made.append(events.UpdateBrokerAddress(group.broker_name, broker_id, request.broker_address))
    master = group.master_broker_id
    if master == broker_id and _restarted(view, group.broker_name, broker_id, connection_id):
        made.append(events.MasterRestarted(group.broker_name, broker_id, group.master_epoch))
    elif master is not None and presumed_alive(view, group.broker_name, master):
        header = RegisterBrokerToControllerResponseHeader(
            cluster_name=request.cluster_name,
            broker_name=request.broker_name,
            master_broker_id=master,
            master_address=group.address_of(master),
            master_epoch=group.master_epoch,
            sync_state_set_epoch=group.sync_state_set_epoch,
        )
    body = SyncStateSet(sync_state_set=group.sync_state_set, sync_state_set_epoch=group.sync_state_set_epoch)
    return Decision(ResponseCode.SUCCESS, None, header, body, tuple(made))


def still_connected(request: RegisterBrokerToControllerRequestHeader) -> Decision:
    """The answer while the broker's heartbeats come over another connection. Code: 2, brokers ask again."""
    header = RegisterBrokerToControllerResponseHeader(
        cluster_name=request.cluster_name, broker_name=request.broker_name
    )
    remark = (
        f"Broker {request.broker_name}:{request.broker_id} uses another connection, so it was not restarted;"
        " try again when that one is closed or silent"
    )
    return Decision(ResponseCode.SYSTEM_BUSY, remark, header)


def _no_room(group: BrokerGroup | None, room: Room, host: str) -> str | None:
    """Why no broker of `host` may become a member of the group; None if one may."""
    if group is None:
        reason = why_not(room.max_groups, "broker groups", total=room.groups, of_host=room.groups_of_host)
        if reason is not None:
            return f"{reason}; cleaned groups count too: raise maxBrokerGroups to allow more"
    else:
        of_host = sum(group.hosts.get(member) == host for member in group.replicas)
        reason = why_not(MAX_REPLICAS, "replicas", total=len(group.replicas), of_host=of_host)
        if reason is not None:
            return f"Broker-set: {group.broker_name}: {reason}; clean those that are gone"
    reason = why_not(room.max_members, "replicas of all groups", total=room.members, of_host=room.members_of_host)
    return None if reason is None else f"{reason}; clean those that are gone, or raise maxBrokerGroups"


def _former_ids(group: BrokerGroup, broker_id: BrokerId, address: str) -> str | None:
    """The other members with this address: its volume may have been emptied."""
    former = sorted(other for other in group.replicas if other != broker_id and group.address_of(other) == address)
    return ";".join(map(str, former)) or None


def _restarted(view: LivenessView, broker_name: str, broker_id: BrokerId, connection_id: int | None) -> bool:
    info = view.info(broker_name, broker_id)
    return info is None or connection_id is None or info.connection_id != connection_id


def _unusable(**fields: str) -> str | None:
    for field, value in fields.items():
        if SEPARATOR in value:
            return f"{field} must not contain {SEPARATOR}, brokers could not keep their identity: {value}"
    return None
