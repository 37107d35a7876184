"""Replaces pods with an older template or a deleted volume: one at a time, the master last.

The StatefulSet's strategy is OnDelete, so a pod changes when it is deleted here. The order, where every reconcile
chooses its step from the current state:

1. pods that serve no client and hold no messages (wrong image, never registered): at once;
2. wait until every replaced pod is ready and back in the SyncStateSet;
3. a slave that is not available, since its restart costs no copy;
4. slaves in sync, while enough copies remain;
5. the master hands over to the best up-to-date slave in sync; then it is a slave.

Without failover no other replica takes the master's place: one that does not serve is replaced first, one that serves
last, and sends wait until it is back.
"""

from rocketmq_operator.domain.actions import DeletePod, HandOver
from rocketmq_operator.domain.plan.groups.state import GroupState, Member, sidecar_address
from rocketmq_operator.domain.plan.groups.without_controllers import MASTER_ID
from rocketmq_operator.domain.plan.step import NOTHING, Blocked, Progress, Step
from rocketmq_resources import names

REQUEUE_SECONDS = 10.0
"""Seconds; events report the progress, this is the fallback."""


def rollout(state: GroupState) -> Step:
    """The next step towards all pods being up to date."""
    if state.stateful_set is not None and not state.settled:
        return Step(busy=True)  # the newest revision is unknown until its status is updated
    outdated = tuple(
        member for member in state.members if member.outdated and member.pod is not None and not member.pod.deleting
    )
    if not outdated:
        return NOTHING
    for part in (_lasting_master, _unused, _unreachable, _rebuilding, _waiting, _unavailable, _slave, _master):
        step = part(state, outdated)
        if step is not None:
            return step
    raise AssertionError("the last part always returns a step")


def _lasting_master(state: GroupState, outdated: tuple[Member, ...]) -> Step | None:
    """Without failover: a master that does not serve goes first, since its slaves are not in sync without it. One that
    would come back empty never goes: its slaves would not follow it."""
    master = outdated[0]
    if state.group.fails_over or master.ordinal != MASTER_ID:
        return None
    if master.volume_deleting:
        message = f"{_name(master)} is always master and keeps its pod: its volume is deleted as soon as the pod stops"
        return Step(busy=True, blocked=Blocked("VolumeBeingDeleted", message))
    if state.view is None or master.alive:
        return None
    return _delete(state, master, f"it {master.problem()}")


def _unused(state: GroupState, outdated: tuple[Member, ...]) -> Step | None:
    """Pods that serve no client and hold no messages: at once."""
    unused = tuple(member for member in outdated if not member.contributes)
    if not unused:
        return None
    actions = tuple(_restart(member, "it serves no client yet") for member in unused)
    return Step(actions=actions, busy=True, progress=_updating(state, f"replacing {_names(unused)}"))


def _unreachable(state: GroupState, outdated: tuple[Member, ...]) -> Step | None:
    """Without the controllers it is unknown which copies a restart costs."""
    if not state.reachable:
        why = Blocked("ControllersUnreachable", f"{_names(outdated)} wait: unknown which replicas are in sync")
    elif state.view is None:
        why = Blocked("GroupUnknown", f"{_names(outdated)} wait: {state.no_view}")
    else:
        return None
    return Step(busy=True, blocked=why)


def _rebuilding(state: GroupState, outdated: tuple[Member, ...]) -> Step | None:
    """A replica that is being rebuilt and is not in the SyncStateSet."""
    rebuilding = tuple(
        member for member in outdated if member.volume_deleting and not member.in_sync and not member.is_master
    )
    return _delete(state, rebuilding[-1], "its volume is being deleted") if rebuilding else None


def _waiting(state: GroupState, outdated: tuple[Member, ...]) -> Step | None:
    """A replaced pod has to be back before the next one is replaced."""
    waiting = tuple(member for member in state.members if member not in outdated and not member.available)
    if not waiting:
        return None
    what = "; ".join(f"{names.pod_name(state.group.name, member.ordinal)} {member.problem()}" for member in waiting)
    return Step(busy=True, requeue=REQUEUE_SECONDS, progress=_updating(state, what))


def _unavailable(state: GroupState, outdated: tuple[Member, ...]) -> Step | None:
    """A slave that is not available; if it is still in the SyncStateSet, enough other copies have to remain."""
    unavailable = tuple(member for member in outdated if not member.is_master and not member.available)
    if not unavailable:
        return None
    member = min(unavailable, key=lambda slave: (slave.alive and slave.in_sync, -slave.ordinal))
    if member.alive and member.in_sync and len(state.in_sync) < state.group.min_in_sync_replicas:
        return Step(busy=True, requeue=REQUEUE_SECONDS, blocked=_too_few_in_sync(state))
    return _delete(state, member, f"it {member.problem()}")


def _slave(state: GroupState, outdated: tuple[Member, ...]) -> Step | None:
    """A slave in sync, while enough copies remain."""
    slaves = tuple(member for member in outdated if not member.is_master)
    if not slaves:
        return None
    if state.live_master is None:
        return _no_master()
    refusal = _restart_refusal(state)
    if refusal is not None:
        return Step(busy=True, blocked=refusal, requeue=REQUEUE_SECONDS)
    return _delete(state, slaves[-1], "it is a slave in sync")


def _master(state: GroupState, outdated: tuple[Member, ...]) -> Step:
    """Only the master is left."""
    master = outdated[0]
    if len(state.members) == 1:
        return _delete(state, master, "the group has no other replica: writes pause")
    if not master.alive:
        return _no_master()
    supervised = state.group.spec.update_strategy == "supervised"
    if not state.group.fails_over:
        if supervised:
            message = (
                f"{_name(master)} is always master: delete the pod to have it updated, sends wait until it is back"
            )
            return Step(progress=Progress("Updating", "WaitingForRestart", message))
        return _delete(state, master, "no other replica takes its place: sends wait until it is back")
    if supervised:
        message = f"{_name(master)} is the master: switch over to have it updated (kubectl rocketmq switchover)"
        return Step(progress=Progress("Updating", "WaitingForSwitchover", message))
    fresh = tuple(member for member in state.members if not member.outdated)
    return hand_over(state, fresh, f"{_name(master)} has to be updated")


def hand_over(state: GroupState, among: tuple[Member, ...], why: str) -> Step:
    """Make the best of `among` master."""
    master = state.live_master
    if master is None or master.pod is None:
        return _no_master()
    if state.group.spec.fenced:
        return Step(busy=True, blocked=Blocked("Fenced", f"{why}, but a fenced group does not switch over"))
    targets = state.candidates(among)
    if not targets or targets[0].pod is None or targets[0].broker_id is None:
        message = f"{why}, but no other replica is ready and in sync"
        return Step(busy=True, requeue=REQUEUE_SECONDS, blocked=Blocked("NoHandOverTarget", message))
    target = targets[0]
    action = HandOver(
        pod=_name(master),
        address=sidecar_address(master.pod),
        target_pod=_name(target),
        target_id=targets[0].broker_id,
        message=f"Handing mastership over from {_name(master)} to {_name(target)}: {why}",
    )
    return Step(
        actions=(action,), busy=True, requeue=1.0, progress=Progress("SwitchingOver", "HandingOver", action.message)
    )


def _delete(state: GroupState, member: Member, why: str) -> Step:
    return Step(
        actions=(_restart(member, why),),
        busy=True,
        requeue=REQUEUE_SECONDS,
        progress=_updating(state, f"replacing {_name(member)}"),
    )


def _restart(member: Member, why: str) -> DeletePod:
    assert member.pod is not None, "only pods are replaced"
    reason = "RebuildingReplica" if member.volume_deleting else "RestartingReplica"
    goal = "to rebuild its replica" if member.volume_deleting else "to update it"
    return DeletePod(member.pod.name, member.pod.uid, reason, f"Deleting pod {member.pod.name} {goal}: {why}")


def _restart_refusal(state: GroupState) -> Blocked | None:
    """Why no slave in sync can be restarted now; None: one can."""
    least = state.group.min_in_sync_replicas
    left = len(state.in_sync) - 1
    if left >= least:
        return None
    if len(state.members) <= least and state.all_available:
        return None  # any order of restarts is short of copies for a moment: sends wait, nothing is lost
    return _too_few_in_sync(state)


def _too_few_in_sync(state: GroupState) -> Blocked:
    count, least = len(state.in_sync), state.group.min_in_sync_replicas
    total = len(state.members)
    message = f"{count} of {total} replicas are in sync and ready: {least} have to remain, so none can be restarted"
    return Blocked("TooFewInSync", message)


def _no_master() -> Step:
    message = "no replica is master: the controllers elect one as soon as a member of the SyncStateSet is alive"
    return Step(busy=True, requeue=REQUEUE_SECONDS, blocked=Blocked("NoMaster", message))


def _updating(state: GroupState, what: str) -> Progress:
    if any(member.volume_deleting for member in state.members):
        return Progress("Rebuilding", "RebuildingReplica", what)
    done = sum(1 for member in state.members if not member.outdated and member.pod is not None)
    return Progress("Updating", "RollingUpdate", f"{done} of {len(state.members)} pods are up to date: {what}")


def _name(member: Member) -> str:
    return "?" if member.pod is None else member.pod.name


def _names(members: tuple[Member, ...]) -> str:
    return ", ".join(_name(member) for member in members)
