"""`rebuild GROUP POD`: delete a replica's data and copy it again from the others; it gets a new broker id.

The operator does it and refuses a rebuild that would lose messages. Known obstacles are refused before the user is
asked. A request that the operator refuses is withdrawn, so that it does not take effect later.
"""

import asyncio

from rocketmq_kubectl.cluster import resources
from rocketmq_kubectl.cluster.group_queries import query_groups
from rocketmq_kubectl.cluster.picture import Picture
from rocketmq_kubectl.cluster.session import Session
from rocketmq_kubectl.errors import CommandRefusedError, NotFoundError, TimedOutError
from rocketmq_kubectl.run import Report
from rocketmq_kubectl.verbs import change
from rocketmq_kubectl.verbs.change import Snapshot
from rocketmq_resources import names

FLAG = "--yes-i-delete-this-replica"
ACCEPTED_SECONDS = 20.0
"""Seconds in which the operator accepts or refuses the request."""
REFUSED = "RebuildRefused"
"""The reason of the condition of a refusal."""


async def rebuild(session: Session, name: str, pod: str, *, confirmed: bool, seconds: float) -> Report:
    """Request it and wait until the operator has begun; with `seconds`, wait until the replica is back in sync."""
    body = await session.group_body(name)
    change.require_active(change.snapshot(body), "rebuild")
    (one,) = await query_groups(session, [body])
    _check(one, pod)
    if not confirmed:
        change.require_typed(
            pod,
            f"All data on the volume of {pod} will be deleted and copied again from the other replicas.\n"
            f"{one.group.name} has one copy less until then ({one.in_sync_text} in sync now).",
            flag=FLAG,
        )
    before = await _uid(session, pod)
    await change.patch(session, name, {"metadata": {"annotations": {names.ANNOTATION_REBUILD: pod}}})
    request = f"the rebuild of {pod}"
    now = await change.until(
        session, name, lambda seen: seen.group.rebuild != pod or _refusal(seen, pod) is not None,
        seconds=ACCEPTED_SECONDS, what=request,
    )  # fmt: skip
    if now.group.rebuild == pod and (why := _refusal(now, pod)) is not None:
        await change.patch(session, name, {"metadata": {"annotations": {names.ANNOTATION_REBUILD: None}}})
        raise CommandRefusedError(f"the operator refuses: {why}; the request was withdrawn")
    if seconds > 0:
        now = await _back_in_sync(session, name, pod, before, seconds)
        return change.done(now, f"{pod} is rebuilt and in sync", pod=pod, effective=True)
    text = f"{pod} is being rebuilt; watch it with kubectl rocketmq status {name} -i 2"
    return change.done(now, text, pod=pod, effective=None)


def _refusal(now: Snapshot, pod: str) -> str | None:
    return next(
        (
            condition.message
            for condition in now.status.conditions
            if condition.reason == REFUSED and pod in condition.message
        ),
        None,
    )


async def _uid(session: Session, pod: str) -> str | None:
    """None without such a pod."""
    try:
        return resources.pod(await session.kube.get(resources.core(session.namespace, "pods", pod))).uid
    except NotFoundError:
        return None


async def _back_in_sync(session: Session, name: str, pod: str, before: str | None, seconds: float) -> Snapshot:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        now = change.snapshot(await session.group_body(name))
        replica = next((found for found in now.status.replica_statuses if found.pod == pod), None)
        uid = await _uid(session, pod)
        if uid not in {None, before} and replica is not None and replica.in_sync and now.status.phase != "Rebuilding":
            return now
        if loop.time() >= deadline:
            raise TimedOutError(
                f"{pod} is not back in sync after {seconds:g} s; it continues: see kubectl rocketmq status {name}"
            )
        await asyncio.sleep(change.POLL)


def _check(picture: Picture, pod: str) -> None:
    replica = picture.find(pod)
    if replica is None or replica.pod != pod:
        known = ", ".join(sorted(other.pod for other in picture.replicas if other.pod)) or "none"
        raise NotFoundError(f"{picture.group.name} has no pod {pod}: its pods are {known}")
    if replica.pod == picture.master:
        advice = (
            f"kubectl rocketmq switchover {picture.group.name} first" if picture.group.fails_over else picture.problem
        )
        raise CommandRefusedError(f"{pod} is the master, the source of the copy: {advice}")
    others = [other for other in picture.in_set if other.pod != pod and other.alive is not False]
    if not others:
        raise CommandRefusedError(f"no replica except {pod} is in sync and alive: rebuilding it would lose messages")
