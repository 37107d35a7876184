"""alterSyncStateSet (1001): the master reports which replicas are in sync with it.

The design relies on one rule: a master of an older epoch cannot change the set, so what it acknowledges with the set
that it has is on the master that replaced it. The order of checks is Java's. The check for an equal set comes before
the checks of epochs, so a master of an older epoch that sends the present set gets 2013 and not 2000.

Differs from 5.3.3: a replica of which a new controller leader cannot know yet counts as alive (no spurious 2006 after
a change of leader), a member that stays need not be alive, and an epoch that would leave Java's int is refused. With
renewEpoch the present set is no reason to refuse: it gets a new epoch, with any of its members alive.
"""

from rocketmq_controller.domain import events
from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.model import (
    MAX_EPOCH,
    BrokerGroup,
    BrokerId,
    LivenessView,
    SyncStateSetEpoch,
    presumed_alive,
)
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.controller import (
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
    SyncStateSet,
)

_NO_HEADER = AlterSyncStateSetResponseHeader()
_UNKNOWN_SET = Decision(
    ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, "Broker metadata is not existed", _NO_HEADER
)
_EQUAL = Decision(
    ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
    "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet",
    _NO_HEADER,
)


def alter_sync_state_set(
    group: BrokerGroup | None, request: AlterSyncStateSetRequestHeader, body: SyncStateSet, view: LivenessView
) -> Decision:
    """Codes: 0; 2013 unknown set, equal set, set without master; 2002 not the master; 2000, 2001 another epoch; 2003,
    2006 wrong members.
    """
    if group is None or not group.replicas:
        return _UNKNOWN_SET
    if body.sync_state_set != group.sync_state_set:
        return _wrong_master(group, request, body) or _wrong_members(group, body, view) or _altered(group, body)
    return (_wrong_master(group, request, body) or _altered(group, body)) if request.renew_epoch else _EQUAL


def _wrong_master(group: BrokerGroup, request: AlterSyncStateSetRequestHeader, body: SyncStateSet) -> Decision | None:
    master = group.master_broker_id
    if master is None or master != request.master_broker_id:
        current = "null" if master is None else master
        return _refused(
            ResponseCode.CONTROLLER_INVALID_MASTER,
            f"the current leader is:{{{current}}}, not {{{request.master_broker_id}}}",
        )
    if request.master_epoch != group.master_epoch:
        return _refused(
            ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
            f"the current master epoch is:{{{group.master_epoch}}}, not {{{request.master_epoch}}}",
        )
    if body.sync_state_set_epoch != group.sync_state_set_epoch:
        return _refused(
            ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
            f"the current syncStateSet epoch is:{{{group.sync_state_set_epoch}}}, not {{{body.sync_state_set_epoch}}}",
        )
    return None


def _wrong_members(group: BrokerGroup, body: SyncStateSet, view: LivenessView) -> Decision | None:
    for replica in sorted(body.sync_state_set):
        if replica not in group.replicas:
            return _refused(ResponseCode.CONTROLLER_INVALID_REPLICAS, f"the replicas {{{replica}}} don't exist")
        if not _stays(group, replica) and not presumed_alive(view, group.broker_name, replica):
            return _refused(ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, f"the replicas {{{replica}}} don't alive")
    if group.master_broker_id not in body.sync_state_set:
        return _refused(
            ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
            f"the newSyncStateSet don't contains origin leader {{{group.master_broker_id}}}",
        )
    return None


def _stays(group: BrokerGroup, replica: int) -> bool:
    """Whether it may be dead: the present set has it too, so a refusal would only keep others out, or in. Except for a
    relaxed master, which may leave itself alone in the set: while it is dead no replica could be elected."""
    return replica in group.sync_state_set and (group.strict or replica != group.master_broker_id)


def _altered(group: BrokerGroup, body: SyncStateSet) -> Decision:
    if group.sync_state_set_epoch >= MAX_EPOCH:
        return _refused(
            ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, f"the syncStateSet epoch has reached {MAX_EPOCH}"
        )
    epoch = SyncStateSetEpoch(group.sync_state_set_epoch + 1)
    new_set = frozenset(map(BrokerId, body.sync_state_set))
    return Decision(
        ResponseCode.SUCCESS,
        None,
        AlterSyncStateSetResponseHeader(new_sync_state_set_epoch=epoch),
        SyncStateSet(sync_state_set=new_set, sync_state_set_epoch=epoch),
        (events.AlterSyncStateSet(group.broker_name, new_set, epoch),),
    )


def _refused(code: ResponseCode, reason: str) -> Decision:
    return Decision(code, f"Rejecting alter syncStateSet request because {reason}", _NO_HEADER)
