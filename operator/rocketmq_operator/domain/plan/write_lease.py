"""How long a master may believe that it still is one, against what its controllers wait for before they elect another
(invariant OneWriter).

Strict durability needs no relation of the two: a master that was replaced gets no copy acknowledged. A relaxed one
acknowledges alone while its lease lasts; its heartbeats tell the controllers of it, who then wait for its end whatever
brokerSuspectTimeoutMs says. One controller cannot have been told: that which has just begun to lead. It waits for a
fixed time, and only that time no lease may outlive. Apache's brokers have no lease.
"""

from typing import Final

from rocketmq_operator.domain.plan.state import GroupState
from rocketmq_operator.domain.plan.step import NOTHING, Blocked, Step

NEW_LEADER_WAITS_MS: Final = 5000
"""For masters it has not heard of: DEFAULT_GRACE of the controllers' `liveness`."""
CLOCKS: Final = 1.05
"""What is waited for may be measured by a clock that runs this much faster, as sidecars assume (`heartbeats`)."""
LONGEST_RELAXED_MS: Final = int(NEW_LEADER_WAITS_MS / CLOCKS)


def lease_too_long(state: GroupState) -> Step:
    """Refuse a lease during which a new leading controller could elect a second master. What runs is left as it is."""
    spec = state.group.spec
    lease = spec.failover.lease_timeout_ms
    if spec.engine != "native" or spec.durability != "relaxed" or lease <= LONGEST_RELAXED_MS:
        return NOTHING
    message = (
        f"failover.leaseTimeoutMs is {lease}: with durability relaxed a master would acknowledge alone for longer than"
        f" the {NEW_LEADER_WAITS_MS} ms that a new leading controller waits for it, and messages could be lost to a"
        f" second master; set {LONGEST_RELAXED_MS} or less, or durability: strict"
    )
    return Step(busy=True, blocked=Blocked("LeaseTooLong", message))


def lease_outlives_suspicion(state: GroupState) -> Blocked | None:
    """A lease that brokerSuspectTimeoutMs of the ControllerCluster does not fit: no danger, but not what was meant."""
    spec, suspect = state.group.spec, state.world.broker_suspect_timeout_ms
    lease = spec.failover.lease_timeout_ms
    if suspect is None or spec.engine != "native" or lease < suspect:
        return None
    cluster = "/".join(state.group.controller or ())
    if spec.durability == "strict":
        effect = "a silent master is replaced while it still takes sends, which then wait in vain"
    else:
        effect = "a silent master is replaced only when its lease has ended, later than the controllers are told to"
    message = (
        f"failover.leaseTimeoutMs is {lease}, tuning.brokerSuspectTimeoutMs of ControllerCluster {cluster} {suspect}:"
        f" {effect}; set leaseTimeoutMs below {suspect}, or brokerSuspectTimeoutMs above {lease}"
    )
    return Blocked("LeaseOutlivesSuspicion", message)
