"""Changing the number of controllers: one member at a time, and only while all others are connected and caught up.

A new pod runs before it is a member; it joins as a learner and votes once it has caught up. A member leaves the quorum
before its pod and its volume are deleted.
"""

from rocketmq_api.group_view import MemberView, QuorumView
from rocketmq_operator.domain.actions import Action, AddMember, DeleteClaim, RemoveMember, TransferLeadership
from rocketmq_operator.domain.observed import ObservedCluster
from rocketmq_operator.domain.plan.cluster_status import catching_up
from rocketmq_operator.domain.plan.step import CHANGING_REQUEUE_SECONDS, NOTHING, Progress, Step
from rocketmq_resources import names


def pods_needed(observed: ObservedCluster) -> int:
    """Replicas of the StatefulSet: those of the spec, and every member that has not left the quorum yet."""
    wanted = observed.cluster.spec.members
    quorum = _leader_view(observed)
    if quorum is None:
        return wanted if observed.stateful_set is None else max(wanted, observed.stateful_set.replicas)
    return max([wanted, *(ordinal + 1 for ordinal in _members(quorum))])


def change_members(observed: ObservedCluster) -> Step:
    """The next step to as many members as spec.members says."""
    wanted = observed.cluster.spec.members
    quorum = _leader_view(observed)
    if quorum is None or observed.stateful_set is None:
        return NOTHING
    members = _members(quorum)
    missing = [ordinal for ordinal in range(wanted) if ordinal not in members]
    leaving = [ordinal for ordinal in sorted(members, reverse=True) if ordinal >= wanted]
    if not missing and not leaving:
        return _clean_up(observed)
    staying = [member for ordinal, member in members.items() if ordinal < wanted]
    for member in staying:
        why = catching_up(member, quorum.commit_index) if member.connected or member.is_leader else "is not connected"
        if why is not None:
            # Not busy: a rolling update may have to repair this member.
            return Step(requeue=CHANGING_REQUEUE_SECONDS, progress=_progress(observed, quorum, f"{member.id} {why}"))
    if missing:
        return _add(observed, quorum, missing[0])
    return _remove(observed, quorum, leaving[0], staying)


def _add(observed: ObservedCluster, quorum: QuorumView, ordinal: int) -> Step:
    cluster, member_id = observed.cluster, names.member_id(ordinal)
    pod = next((pod for pod in observed.pods if pod.ordinal == ordinal), None)
    if pod is None or pod.deleting or not pod.running:
        what = f"the pod of {member_id} does not run yet"
        return Step(busy=True, requeue=CHANGING_REQUEUE_SECONDS, progress=_progress(observed, quorum, what))
    address = names.address(names.controller(cluster.name), cluster.namespace, ordinal, names.PORT_CONTROLLER)
    return _change(observed, quorum, AddMember(member_id, address), f"adding {member_id}")


def _remove(observed: ObservedCluster, quorum: QuorumView, ordinal: int, staying: list[MemberView]) -> Step:
    leader = next(member for member in quorum.members if member.id == quorum.leader_id)
    if leader not in staying:
        target = max(staying, key=lambda member: (member.match_index or 0, member.id))
        message = f"{leader.id} leads and leaves the quorum: {target.id} takes over"
        return _change(
            observed, quorum, TransferLeadership(target.id, message), f"{target.id} takes over from {leader.id}"
        )
    member_id = names.member_id(ordinal)
    return _change(observed, quorum, RemoveMember(member_id), f"removing {member_id}")


def _clean_up(observed: ObservedCluster) -> Step:
    """Delete the volumes of members that have left. A later member with such an id starts with an empty volume."""
    assert observed.stateful_set is not None
    running = {pod.ordinal for pod in observed.pods}
    least = max(observed.cluster.spec.members, observed.stateful_set.replicas)
    actions = tuple(
        DeleteClaim(claim.name, claim.uid, "MemberLeft", f"Deleting PVC {claim.name}: its member left the quorum")
        for claim in observed.claims
        if claim.ordinal >= least and claim.ordinal not in running and not claim.deleting
    )
    return Step(actions=actions, busy=True) if actions else NOTHING


def _change(observed: ObservedCluster, quorum: QuorumView, action: Action, what: str) -> Step:
    return Step(
        actions=(action,), busy=True, requeue=CHANGING_REQUEUE_SECONDS, progress=_progress(observed, quorum, what)
    )


def _progress(observed: ObservedCluster, quorum: QuorumView, what: str) -> Progress:
    voters = sum(1 for member in quorum.members if member.voter)
    message = f"{voters} of {observed.cluster.spec.members} members vote: {what}"
    return Progress("Scaling", "ChangingMembers", message)


def _leader_view(observed: ObservedCluster) -> QuorumView | None:
    """The quorum as its leader reports it: only the leader can tell which members have caught up."""
    return observed.quorum if observed.quorum is not None and observed.quorum.from_leader else None


def _members(quorum: QuorumView) -> dict[int, MemberView]:
    """By ordinal; members that an administrator added under other ids are left alone."""
    by_id = {member.id: member for member in quorum.members}
    known = {names.member_ordinal(member_id): member for member_id, member in by_id.items()}
    return {ordinal: member for ordinal, member in known.items() if ordinal is not None}
