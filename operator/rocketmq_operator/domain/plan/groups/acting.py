"""An acting master (RIP-32): a slave that serves consumers while the group has no master.

Only the sidecars know which one, and no event reports it. So they are asked again and again while the
controllers name no living master, and in a group without controllers always.
"""

from typing import Final

from rocketmq_api.group_view import GroupView, Liveness
from rocketmq_operator.domain.conditions import Condition, condition
from rocketmq_operator.domain.observed import Controllers
from rocketmq_operator.domain.plan.groups.state import GroupState
from rocketmq_operator.domain.plan.step import NOTHING, Blocked, Step
from rocketmq_resources.broker_group import BrokerGroup

ASK_SECONDS: Final = 5.0


def may_act(group: BrokerGroup, controllers: Controllers) -> bool:
    """Whether a slave of the group may act now."""
    known_master = controllers.reachable and _master_lives(controllers.group)
    return group.acts and not group.spec.hibernated and not known_master


def acting_pods(state: GroupState) -> tuple[str, ...]:
    """Names of the pods whose replicas act, by ordinal: one, unless name servers contradict each other."""
    if not may_act(state.group, state.observed.controllers):
        return ()
    return tuple(
        member.pod.name
        for member in state.all_members
        if member.pod is not None and member.sidecar is not None and member.sidecar.acting
    )


def ask_again(state: GroupState) -> Step:
    """Look again soon while only sidecars know what changes."""
    group = state.group
    asks = may_act(group, state.observed.controllers) or not (group.fails_over or group.spec.hibernated)
    return Step(requeue=ASK_SECONDS) if asks else NOTHING


def acting_condition(state: GroupState) -> Condition:
    """Whether a slave serves consumers because there is no master."""
    kind, acting = "ActingMaster", acting_pods(state)
    if acting:
        serve = "serves" if len(acting) == 1 else "serve"
        message = f"{' and '.join(acting)} {serve} consumers until there is a master; {state.group.sends_while_acting}"
        return condition(kind, holds=True, reason="ServesConsumers", message=message)
    if not state.group.acts:
        message = "spec.actingMaster is off: without a master consumers wait"
        return condition(kind, holds=False, reason="Off", message=message)
    if state.live_master is not None:
        return condition(kind, holds=False, reason="MasterServes", message="there is a master")
    return condition(kind, holds=False, reason="NoneActs", message="no replica acts for a master")


def not_shown(state: GroupState) -> Blocked | None:
    """Report name servers of ours that are configured to hide acting masters: consumers would not find one."""
    if not state.group.acts or state.observed.acting_master_shown is not False:
        return None
    group = state.group
    kind = "ControllerCluster" if group.name_server is None else "NameServer"
    name = "/".join(group.name_server or group.controller or ())
    message = (
        f"spec.actingMaster is {group.spec.acting_master}, but spec.config of {kind} {name} says"
        " supportActingMaster: false, so consumers would not find the slave that serves them: remove the key there"
    )
    return Blocked("ActingMasterNotShown", message)


def _master_lives(view: GroupView | None) -> bool:
    return view is not None and any(
        standing.broker_id == view.master_broker_id and standing.liveness is Liveness.ALIVE
        for standing in view.replicas
    )
