"""`controller status|transfer-leader`: the members of a ControllerCluster, each asked itself."""

from collections.abc import Mapping, Sequence

from rocketmq_api.group_view import QuorumView
from rocketmq_kubectl import output
from rocketmq_kubectl.cluster import resources
from rocketmq_kubectl.cluster.resources import Pod
from rocketmq_kubectl.cluster.session import Session, gather_results
from rocketmq_kubectl.errors import NotFoundError, PluginError, UnreachableError
from rocketmq_kubectl.output import Document
from rocketmq_kubectl.run import Report
from rocketmq_resources import names

STATUS_HEADERS = ("MEMBER", "POD", "ROLE", "TERM", "CONNECTED", "ON-DISK", "APPLIED", "ADDRESS", "NODE")


async def status(session: Session, name: str | None, *, namespace: str | None = None) -> Report:
    """One ControllerCluster, or all of the namespace (None: the session's)."""
    place = namespace or session.namespace
    if name is None:
        bodies = await session.kube.items(resources.collection("ControllerCluster", place))
        wanted = sorted(resources.controller_cluster(body).name for body in bodies)
        if not wanted:
            return Report("No controller clusters found.\n", {"controllerClusters": []})
    else:
        await session.controller_body(place, name)
        wanted = [name]
    reports = await gather_results([_cluster_status(session, place, cluster) for cluster in wanted])
    fine = [report for report in reports if isinstance(report, Report)]
    problems = [report for report in reports if isinstance(report, PluginError)]
    problems += [problem for report in fine for problem in report.problems]
    return Report(
        "\n".join(report.table for report in fine),
        {"controllerClusters": [report.document for report in fine]},
        tuple(problems),
    )


async def _cluster_status(session: Session, namespace: str, name: str) -> Report:
    pods = await session.pods(namespace, "controller", name)
    answers = await _each(session, name, pods)
    views = {pod: answer for pod, answer in answers.items() if isinstance(answer, QuorumView)}
    problems = [answer for answer in answers.values() if isinstance(answer, PluginError)]
    if not views:
        problems = problems or [UnreachableError(f"no pod of ControllerCluster {name} is running")]
    leading = next((view for view in views.values() if view.from_leader), None)
    if views and leading is None:
        problems.append(UnreachableError(f"{name}: no member that answers leads; an election may be in progress"))
    return Report(_table(name, pods, views, leading), _document(namespace, name, views, leading), tuple(problems))


async def _each(session: Session, name: str, pods: Sequence[Pod]) -> dict[str, QuorumView | PluginError]:
    """What each running member says of the quorum."""
    running = [pod for pod in pods if pod.reachable]

    async def get_members(pod: Pod) -> QuorumView:
        async with session.member(pod.namespace, name, pod.name) as client:
            return await session.call(client.members_by(client.addresses[0]))

    answers = await gather_results([get_members(pod) for pod in running])
    return dict(zip((pod.name for pod in running), answers, strict=True))


def _table(name: str, pods: Sequence[Pod], views: Mapping[str, QuorumView], leading: QuorumView | None) -> str:
    if not views:
        return ""
    seen = leading or next(iter(views.values()))
    at = {view.answered_by: pod for pod, view in views.items()}
    nodes = {pod.name: pod.node for pod in pods}
    rows = []
    for member in seen.members:
        pod = at.get(member.id)
        own = views.get(pod or "")
        role = "leader" if leading is not None and member.id == leading.leader_id else "follower"
        rows.append(
            (
                member.id,
                pod,
                role if own is not None else "silent",
                own.term if own is not None else None,
                member.connected,
                member.match_index,
                own.applied_index if own is not None else None,
                member.address,
                nodes.get(pod or ""),
            )
        )
    lead = f"leader {leading.leader_id} in term {leading.term}" if leading is not None else "no leader"
    return f"{name}: {lead}, commit index {seen.commit_index}\n{output.table(STATUS_HEADERS, rows)}"


def _document(namespace: str, name: str, views: Mapping[str, QuorumView], leading: QuorumView | None) -> Document:
    at = {view.answered_by: pod for pod, view in views.items()}
    seen = leading or next(iter(views.values()), None)
    return {
        "namespace": namespace,
        "name": name,
        "leaderId": None if leading is None else leading.leader_id,
        "term": None if seen is None else seen.term,
        "commitIndex": None if seen is None else seen.commit_index,
        "members": [
            {
                "id": member.id,
                "pod": at.get(member.id),
                "address": member.address,
                "isLeader": leading is not None and member.id == leading.leader_id,
                "answers": member.id in at,
                "connected": member.connected,
                "matchIndex": member.match_index,
            }
            for member in (() if seen is None else seen.members)
        ],
    }


async def transfer_leader(session: Session, name: str, wanted: str | None, *, seconds: float) -> Report:
    """Have `wanted` (a member's id or pod; None: the one whose log is furthest) lead."""
    await session.controller_body(session.namespace, name)
    target = "" if wanted is None else _member_id(name, wanted)
    async with session.controllers_of(session.namespace, name, seconds=seconds) as client:
        before = await session.call(client.members())
        if target and target not in {member.id for member in before.members}:
            there = ", ".join(member.id for member in before.members)
            raise NotFoundError(f"ControllerCluster {name} has no member {wanted}: there are {there}")
        leader = await session.call(client.transfer_leadership(target))
    text = f"{leader} leads {name}" + (" already" if leader == before.leader_id else f" (before: {before.leader_id})")
    document = {
        "namespace": session.namespace, "name": name, "leaderId": leader, "changed": leader != before.leader_id,
    }  # fmt: skip
    return Report(f"{text}\n", document)


def _member_id(cluster: str, wanted: str) -> str:
    """n1 for n1, and for main-controller-1."""
    if wanted.startswith(f"{names.controller(cluster)}-"):
        try:
            return names.member_id(names.ordinal_of(wanted))
        except ValueError:
            return wanted
    return wanted
