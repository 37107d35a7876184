"""The plan of a BrokerGroup: every part asked in order of urgency, and what the status says of it all."""

import msgspec

from rocketmq_operator.domain.actions import HandOver
from rocketmq_operator.domain.group_conditions import Outlook
from rocketmq_operator.domain.group_status import group_status, notices_of
from rocketmq_operator.domain.observed import ObservedGroup
from rocketmq_operator.domain.plan.deletion import delete, keep_finalizer
from rocketmq_operator.domain.plan.fencing import fence
from rocketmq_operator.domain.plan.identity import forget_orphans, write_down
from rocketmq_operator.domain.plan.objects import ObjectMemory, group_objects, missing_references
from rocketmq_operator.domain.plan.rebuild import rebuild
from rocketmq_operator.domain.plan.rollout import rollout
from rocketmq_operator.domain.plan.scaling import clean_up, scale
from rocketmq_operator.domain.plan.settings import PlanSettings
from rocketmq_operator.domain.plan.state import GroupState
from rocketmq_operator.domain.plan.step import NOTHING, Plan, Step, combine
from rocketmq_operator.domain.plan.storage import grow
from rocketmq_operator.domain.plan.verification import watch_verification
from rocketmq_operator.domain.plan.write_lease import lease_outlives_suspicion, lease_too_long


def plan_group(world: ObservedGroup, settings: PlanSettings, now: float, memory: ObjectMemory | None = None) -> Plan:
    """What to do for one group now. `now`: seconds since 1970; `memory` saves time and changes nothing."""
    state = GroupState(world)
    group = state.group
    if group.metadata.deleting:
        step = delete(state, now)
        return _plan(state, step, now)
    if group.spec.paused:
        return _plan(state, NOTHING, now)
    refusal, scaled = lease_too_long(state), scale(state)
    step = combine(
        (
            missing_references(state),
            refusal,
            keep_finalizer(state),
            write_down(state),
            fence(state),
            scaled.step,
            rebuild(state),
            grow(state),
            rollout(state),
            clean_up(state, scaled.replicas),
            forget_orphans(state),
            watch_verification(state, now),
        )
    )
    if refusal.blocked is not None:
        return _plan(state, step, now)
    make = group_objects if memory is None else memory.group_objects
    objects, removals = make(state, settings.images, settings.access, scaled.replicas)
    return msgspec.structs.replace(_plan(state, step, now), objects=objects, removals=removals)


def _plan(state: GroupState, step: Step, now: float) -> Plan:
    outlook = Outlook(progress=step.progress, blocked=step.blocked, advice=lease_outlives_suspicion(state))
    status = group_status(state, outlook, now=now)
    return Plan(
        actions=step.actions,
        status=status,
        notices=notices_of(state.group, status),
        requeue=step.requeue,
        announce=any(isinstance(action, HandOver) for action in step.actions),
    )
