"""Refuses a group whose brokerName another BrokerGroup has at the same controllers (`kubernetes/broker_names.py`)."""

from typing import Final

from rocketmq_operator.domain.plan.groups.state import GroupState
from rocketmq_operator.domain.plan.step import NOTHING, Blocked, Step

LOOK_AGAIN_SECONDS: Final = 10.0
"""No event of this group reports that the other one was deleted."""


def name_taken(state: GroupState) -> Step:
    """Nothing is made or changed while another group has the name."""
    holder = state.observed.name_holder
    if holder is None:
        return NOTHING
    message = (
        f"{holder} has brokerName {state.group.broker_name} at the same controllers, which would take both for one"
        " group: delete one of them, and create it with another brokerName"
    )
    return Step(busy=True, blocked=Blocked("BrokerNameTaken", message), requeue=LOOK_AGAIN_SECONDS)
