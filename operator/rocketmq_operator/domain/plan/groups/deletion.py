"""Deletion of a group. With reclaimPolicy Retain there is no finalizer: volumes and the controllers' records stay, and
a group of the same name continues with them. With Delete a finalizer waits until the pods are deleted and the
controllers have forgotten the group, for a bounded time: a stale record is better than a resource that cannot
be deleted.
"""

from rocketmq_operator.domain.actions import Action, CleanBrokerData, DeleteClaim, DeleteStatefulSet, SetFinalizer
from rocketmq_operator.domain.conditions import timestamp
from rocketmq_operator.domain.plan.groups.state import GroupState
from rocketmq_operator.domain.plan.step import NOTHING, Blocked, Progress, Step
from rocketmq_resources import names

PODS_SECONDS = 300.0
"""How long pods may take to stop; a pod on a lost node never stops."""
CONTROLLERS_SECONDS = 120.0
"""How long to wait for unreachable controllers, from the deletion."""
REQUEUE_SECONDS = 5.0


def keep_finalizer(state: GroupState) -> Step:
    """Set the finalizer if the deletion of the group needs a clean-up."""
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
        for claim in state.observed.claims
        if not claim.deleting
    )
    if (state.observed.pods or stateful_set is not None) and waited < PODS_SECONDS:
        return _waiting("pods are stopping", tuple(actions))
    return _forget(state, waited, tuple(actions))


def _forget(state: GroupState, waited: float, actions: tuple[Action, ...]) -> Step:
    controllers = state.observed.controllers
    if not state.group.fails_over:
        return Step(actions=(*actions, SetFinalizer(present=False)), busy=True)
    holder = state.observed.name_holder
    if holder is not None:
        message = f"The controllers' record of {state.group.broker_name} is that of {holder}, and stays"
        return Step(actions=(*actions, SetFinalizer(present=False, message=message)), busy=True)
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
        why = "its ControllerCluster does not exist"
    elif waited < CONTROLLERS_SECONDS:
        step = _waiting("the controllers are unreachable", actions)
        return Step(
            actions=step.actions,
            busy=True,
            requeue=REQUEUE_SECONDS,
            progress=step.progress,
            blocked=Blocked("ControllersUnreachable", f"waiting for them for at most {CONTROLLERS_SECONDS:.0f} s"),
        )
    else:
        why = f"the controllers were unreachable for {CONTROLLERS_SECONDS:.0f} s"
    message = (
        "" if not why else f"Released without cleaning the controllers' record of {state.group.broker_name}: {why}"
    )
    return Step(actions=(*actions, SetFinalizer(present=False, message=message, warning=bool(why))), busy=True)


def _waiting(what: str, actions: tuple[Action, ...]) -> Step:
    return Step(actions=actions, busy=True, requeue=REQUEUE_SECONDS, progress=Progress("Deleting", "Deleting", what))
