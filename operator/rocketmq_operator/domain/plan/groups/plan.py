"""The plan of a BrokerGroup: all parts in order of urgency, and the status."""

import msgspec

from rocketmq_operator.domain.actions import HandOver
from rocketmq_operator.domain.observed import ObservedGroup
from rocketmq_operator.domain.plan.config_size import config_too_large
from rocketmq_operator.domain.plan.groups.acting import ask_again, not_shown
from rocketmq_operator.domain.plan.groups.broker_name import name_taken
from rocketmq_operator.domain.plan.groups.conditions import Outlook
from rocketmq_operator.domain.plan.groups.deletion import delete, keep_finalizer
from rocketmq_operator.domain.plan.groups.fencing import ask_master, fence
from rocketmq_operator.domain.plan.groups.generation import unfinished
from rocketmq_operator.domain.plan.groups.identity import forget_orphans, record_ids
from rocketmq_operator.domain.plan.groups.objects import ObjectMemory, ensure_secret, group_objects, missing_references
from rocketmq_operator.domain.plan.groups.rebuild import rebuild
from rocketmq_operator.domain.plan.groups.rollout import rollout
from rocketmq_operator.domain.plan.groups.scaling import clean_up, scale
from rocketmq_operator.domain.plan.groups.state import GroupState
from rocketmq_operator.domain.plan.groups.status import events_of, group_status
from rocketmq_operator.domain.plan.groups.storage import grow
from rocketmq_operator.domain.plan.groups.verification import check_verification
from rocketmq_operator.domain.plan.groups.write_lease import lease_outlives_suspicion, lease_too_long
from rocketmq_operator.domain.plan.step import Plan, PlanSettings, Step, ask_for_pods, combine


def plan_group(observed: ObservedGroup, settings: PlanSettings, now: float, memory: ObjectMemory | None = None) -> Plan:
    """What to do for one group now. `now`: seconds since 1970; `memory` only saves time."""
    state = GroupState(observed)
    group = state.group
    if group.metadata.deleting:
        step = delete(state, now)
        return _plan(state, step, now)
    if group.spec.paused:
        return _plan(
            state, combine((ask_master(state), ask_again(state), ask_for_pods(state.stateful_set, observed.pods))), now
        )
    taken = name_taken(state)
    if taken.blocked is not None:
        return _plan(state, taken, now)
    scaled = scale(state)
    make = group_objects if memory is None else memory.group_objects
    objects, removals = make(state, settings.images, settings.access, scaled.replicas)
    refusal = combine((lease_too_long(state), config_too_large(objects)))
    step = combine(
        (
            missing_references(state),
            refusal,
            keep_finalizer(state),
            record_ids(state),
            fence(state),
            ask_master(state),
            scaled.step,
            rebuild(state),
            grow(state, now),
            rollout(state),
            clean_up(state, scaled.replicas),
            forget_orphans(state),
            check_verification(state, now),
            ask_again(state),
            ask_for_pods(state.stateful_set, observed.pods),
        )
    )
    if refusal.blocked is not None:
        return _plan(state, step, now)
    return msgspec.structs.replace(
        _plan(state, step, now), first=ensure_secret(observed), objects=objects, removals=removals
    )


def _plan(state: GroupState, step: Step, now: float) -> Plan:
    advice = lease_outlives_suspicion(state) or not_shown(state)
    outlook = Outlook(progress=step.progress, blocked=step.blocked, advice=advice, left=unfinished(state))
    status = group_status(state, outlook, now=now)
    return Plan(
        actions=step.actions,
        status=status,
        events=events_of(state.group, status),
        requeue=step.requeue,
        status_first=any(isinstance(action, HandOver) for action in step.actions),
    )
