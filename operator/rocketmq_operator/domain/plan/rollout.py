"""Replacing pods that run an older template, or whose volume goes: one at a time, the master last.

The StatefulSet's strategy is OnDelete, so a pod changes when it is deleted here. Order, each step chosen anew from
what is seen:

1. pods that serve nobody and hold nothing (a wrong image, never registered): at once;
2. wait until everyone who has been replaced is ready and back in the SyncStateSet;
3. a slave that does not do its part: it costs no copy;
4. slaves that are in sync, as long as enough copies remain;
5. the master hands over to the best slave in sync that is up to date; then it is a slave.
"""

from rocketmq_operator.domain import names
from rocketmq_operator.domain.actions import DeletePod, HandOver
from rocketmq_operator.domain.plan.state import GroupState, Member, sidecar_address
from rocketmq_operator.domain.plan.step import NOTHING, Blocked, Progress, Step

LOOK_AGAIN = 10.0
"""Seconds; what is waited for is told by events, this is the net below them."""


def rollout(state: GroupState) -> Step:
    """The next step towards all pods being up to date."""
    if state.stateful_set is not None and not state.settled:
        return Step(busy=True)  # which revision is the newest is not known yet; its status will tell
    outdated = tuple(
        member for member in state.members if member.outdated and member.pod is not None and not member.pod.deleting
    )
    if not outdated:
        return NOTHING
    for part in (_useless, _unheard, _lost, _waiting, _behind, _slave, _master):
        step = part(state, outdated)
        if step is not None:
            return step
    raise AssertionError("the last part always has an answer")


def _useless(state: GroupState, outdated: tuple[Member, ...]) -> Step | None:
    """Pods that serve nobody and hold nothing: at once."""
    useless = tuple(member for member in outdated if not member.contributes)
    if not useless:
        return None
    actions = tuple(_restart(member, "it serves nobody yet") for member in useless)
    return Step(actions=actions, busy=True, progress=_updating(state, f"replacing {_names(useless)}"))


def _unheard(state: GroupState, outdated: tuple[Member, ...]) -> Step | None:
    """Without the controllers nobody can tell what a restart costs."""
    if not state.reachable:
        why = Blocked("ControllersUnreachable", f"{_names(outdated)} wait: nobody can tell who is in sync")
    elif state.view is None:
        why = Blocked("GroupUnknown", f"{_names(outdated)} wait: the controllers know no replica of this group")
    else:
        return None
    return Step(busy=True, blocked=why)


def _lost(state: GroupState, outdated: tuple[Member, ...]) -> Step | None:
    """A replica that is to be made anew and is in nobody's way."""
    lost = tuple(member for member in outdated if member.doomed and not member.in_sync and not member.is_master)
    return _delete(state, lost[-1], "its volume is being deleted") if lost else None


def _waiting(state: GroupState, outdated: tuple[Member, ...]) -> Step | None:
    """Whoever was replaced has to be back before the next one goes."""
    waiting = tuple(member for member in state.members if member not in outdated and not member.available)
    if not waiting:
        return None
    what = "; ".join(f"{names.pod_name(state.group.name, one.ordinal)} {one.what_is_missing()}" for one in waiting)
    return Step(busy=True, requeue=LOOK_AGAIN, progress=_updating(state, what))


def _behind(state: GroupState, outdated: tuple[Member, ...]) -> Step | None:
    """A slave that does not do its part; if its copy counts all the same, enough others have to remain."""
    behind = tuple(member for member in outdated if not member.is_master and not member.available)
    if not behind:
        return None
    member = min(behind, key=lambda one: (one.alive and one.in_sync, -one.ordinal))
    if member.alive and member.in_sync and len(state.in_sync) < state.group.min_in_sync_replicas:
        return Step(busy=True, requeue=LOOK_AGAIN, blocked=_few(state))
    return _delete(state, member, f"it {member.what_is_missing()}")


def _slave(state: GroupState, outdated: tuple[Member, ...]) -> Step | None:
    """A slave in sync, as long as enough copies remain."""
    slaves = tuple(member for member in outdated if not member.is_master)
    if not slaves:
        return None
    if state.living_master is None:
        return _no_master()
    refusal = _too_few(state)
    if refusal is not None:
        return Step(busy=True, blocked=refusal, requeue=LOOK_AGAIN)
    return _delete(state, slaves[-1], "it is a slave in sync")


def _master(state: GroupState, outdated: tuple[Member, ...]) -> Step:
    """Nobody else is left."""
    master = outdated[0]
    if len(state.members) == 1:
        return _delete(state, master, "the group has no other replica: writes pause")
    if not master.alive:
        return _no_master()
    if state.group.spec.update_strategy == "supervised":
        message = (
            f"{_name(master)} is the master: hand mastership over to have it updated (kubectl rocketmq switchover)"
        )
        return Step(progress=Progress("Updating", "WaitingForSwitchover", message))
    fresh = tuple(member for member in state.members if not member.outdated)
    return hand_over(state, fresh, f"{_name(master)} has to be updated")


def hand_over(state: GroupState, among: tuple[Member, ...], why: str) -> Step:
    """Have the best of `among` made master."""
    master = state.living_master
    if master is None or master.pod is None:
        return _no_master()
    if state.group.spec.fenced:
        return Step(busy=True, blocked=Blocked("Fenced", f"{why}, but a fenced group hands no mastership over"))
    targets = state.candidates(among)
    if not targets or targets[0].pod is None or targets[0].broker_id is None:
        message = f"{why}, but no other replica is ready and in sync"
        return Step(busy=True, requeue=LOOK_AGAIN, blocked=Blocked("NobodyToHandOverTo", message))
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
        requeue=LOOK_AGAIN,
        progress=_updating(state, f"replacing {_name(member)}"),
    )


def _restart(member: Member, why: str) -> DeletePod:
    assert member.pod is not None, "only pods are replaced"
    reason = "RebuildingReplica" if member.doomed else "RestartingReplica"
    goal = "its replica is made anew" if member.doomed else "it is brought up to date"
    return DeletePod(member.pod.name, member.pod.uid, reason, f"Deleting pod {member.pod.name}, {goal}: {why}")


def _too_few(state: GroupState) -> Blocked | None:
    """Whether a slave in sync can be spared."""
    least = state.group.min_in_sync_replicas
    left = len(state.in_sync) - 1
    if left >= least:
        return None
    if len(state.members) <= least and state.all_available:
        return None  # every order of restarts is short of copies for a moment: sends wait, nothing is lost
    return _few(state)


def _few(state: GroupState) -> Blocked:
    count, least = len(state.in_sync), state.group.min_in_sync_replicas
    message = f"{count} of {len(state.members)} replicas are in sync and ready: {least} have to remain, so none can go"
    return Blocked("TooFewInSync", message)


def _no_master() -> Step:
    message = "no replica is master: the controllers elect one as soon as one of the SyncStateSet lives"
    return Step(busy=True, requeue=LOOK_AGAIN, blocked=Blocked("NoMaster", message))


def _updating(state: GroupState, what: str) -> Progress:
    if any(member.doomed for member in state.members):
        return Progress("Rebuilding", "RebuildingReplica", what)
    done = sum(1 for member in state.members if not member.outdated and member.pod is not None)
    return Progress("Updating", "RollingUpdate", f"{done} of {len(state.members)} pods are up to date: {what}")


def _name(member: Member) -> str:
    return "?" if member.pod is None else member.pod.name


def _names(members: tuple[Member, ...]) -> str:
    return ", ".join(_name(member) for member in members)
