"""The end of a group. With reclaimPolicy Retain nothing is held up: volumes and the controllers' records stay, and a
group of the same name goes on where this one ended. With Delete a finalizer waits until the pods are gone and the
controllers have forgotten the group - for a bounded time, since a resource that cannot be deleted is worse than a
stale record.
"""

from rocketmq_operator.domain import names
from rocketmq_operator.domain.actions import Action, CleanBrokerData, DeleteClaim, DeleteStatefulSet, SetFinalizer
from rocketmq_operator.domain.conditions import timestamp
from rocketmq_operator.domain.plan.state import GroupState
from rocketmq_operator.domain.plan.step import NOTHING, Blocked, Progress, Step

PODS_SECONDS = 300.0
"""How long pods may take to stop; one on a lost node never does."""
CONTROLLERS_SECONDS = 120.0
"""How long controllers that are not heard are waited for, from the deletion."""
LOOK_AGAIN = 5.0


def keep_finalizer(state: GroupState) -> Step:
    """Whether somebody has to clean up after this group; decided while it lives."""
    wanted = state.group.spec.storage.reclaim_policy == "Delete"
    present = names.FINALIZER in state.group.metadata.finalizers
    return NOTHING if wanted == present else Step(actions=(SetFinalizer(wanted),))


def delete(state: GroupState, now: float) -> Step:
    """The next step of a group that is being deleted."""
    if names.FINALIZER not in state.group.metadata.finalizers:
        return NOTHING
    waited = now - timestamp(state.group.metadata.deletion_timestamp, now)
    actions: list[Action] = []
    stateful_set = state.stateful_set
    if stateful_set is not None and not stateful_set.deleting:
        message = f"Deleting StatefulSet {stateful_set.name} with its pods"
        actions.append(
            DeleteStatefulSet(stateful_set.name, stateful_set.uid, orphan=False, reason="Deleting", message=message)
        )
    actions.extend(
        DeleteClaim(claim.name, claim.uid, "VolumeDeleted", f"Deleting PVC {claim.name}: reclaimPolicy is Delete")
        for claim in state.world.claims
        if not claim.deleting
    )
    if (state.world.pods or stateful_set is not None) and waited < PODS_SECONDS:
        return _waiting("pods are stopping", tuple(actions))
    return _forget(state, waited, tuple(actions))


def _forget(state: GroupState, waited: float, actions: tuple[Action, ...]) -> Step:
    controllers = state.world.controllers
    if (
        state.reachable
        and state.view is not None
        and state.view.replicas
        and waited < CONTROLLERS_SECONDS + PODS_SECONDS
    ):
        message = f"The controllers forget {state.group.broker_name}"
        clean = CleanBrokerData(state.group.broker_name, None, message)
        return _waiting("the controllers forget the group", (*actions, clean))
    if state.reachable:
        known = state.view is not None and bool(state.view.replicas)
        why = "the controllers refused to forget the group in time" if known else ""
    elif controllers.missing:
        why = "its ControllerCluster does not exist any more"
    elif waited < CONTROLLERS_SECONDS:
        step = _waiting("the controllers are not heard", actions)
        return Step(
            actions=step.actions,
            busy=True,
            requeue=LOOK_AGAIN,
            progress=step.progress,
            blocked=Blocked("ControllersUnreachable", f"waiting for them for {CONTROLLERS_SECONDS:.0f} s at most"),
        )
    else:
        why = f"the controllers were not heard for {CONTROLLERS_SECONDS:.0f} s"
    message = (
        "" if not why else f"Released without cleaning the controllers' record of {state.group.broker_name}: {why}"
    )
    return Step(actions=(*actions, SetFinalizer(present=False, message=message, warning=bool(why))), busy=True)


def _waiting(what: str, actions: tuple[Action, ...]) -> Step:
    return Step(actions=actions, busy=True, requeue=LOOK_AGAIN, progress=Progress("Deleting", "Deleting", what))
