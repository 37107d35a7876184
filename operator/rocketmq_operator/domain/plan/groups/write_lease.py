"""Compares a master's write lease with the time that its controllers wait before they elect another master (invariant
OneWriter).

Strict durability needs no relation of the two: a replaced master gets no copy acknowledged. A relaxed master
acknowledges alone while its lease lasts. Its heartbeats contain the lease, and the controllers wait for its end, even
longer than brokerSuspectTimeoutMs. Only a controller that has just become leader may not have received a heartbeat. It
waits a fixed time, and no lease may be longer than that. Apache's brokers have no lease.
"""

from rocketmq_formats.remoting.controller import LONGEST_WRITE_LEASE_MS, NEW_LEADER_WAITS_MS
from rocketmq_operator.domain.plan.groups.state import GroupState
from rocketmq_operator.domain.plan.step import NOTHING, Blocked, Step


def lease_too_long(state: GroupState) -> Step:
    """Refuse a lease during which a new leader could elect a second master. Running pods keep their lease."""
    spec = state.group.spec
    lease = spec.failover.lease_timeout_ms
    if spec.engine != "native" or spec.durability != "relaxed" or lease <= LONGEST_WRITE_LEASE_MS:
        return NOTHING
    message = (
        f"failover.leaseTimeoutMs is {lease}: with durability relaxed a master could acknowledge alone for longer than"
        f" the {NEW_LEADER_WAITS_MS} ms that a new leading controller waits, and a second master could lose these"
        f" messages; set {LONGEST_WRITE_LEASE_MS} or less, or durability: strict"
    )
    return Step(busy=True, blocked=Blocked("LeaseTooLong", message))


def lease_outlives_suspicion(state: GroupState) -> Blocked | None:
    """Report a lease longer than brokerSuspectTimeoutMs of the ControllerCluster: safe, but probably unintended."""
    spec, suspect = state.group.spec, state.observed.broker_suspect_timeout_ms
    lease = spec.failover.lease_timeout_ms
    if suspect is None or spec.engine != "native" or lease < suspect:
        return None
    cluster = "/".join(state.group.controller or ())
    if spec.durability == "strict":
        effect = "a silent master is replaced while it still takes sends, which then time out"
    else:
        effect = "a silent master is replaced only when its lease has ended, later than configured in the controllers"
    message = (
        f"failover.leaseTimeoutMs is {lease}, tuning.brokerSuspectTimeoutMs of ControllerCluster {cluster} is"
        f" {suspect}: {effect}; set leaseTimeoutMs below {suspect}, or brokerSuspectTimeoutMs above {lease}"
    )
    return Blocked("LeaseOutlivesSuspicion", message)
