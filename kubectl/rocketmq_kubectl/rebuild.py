"""`rebuild GROUP POD`: throw a replica's data away and copy it anew from the others; it gets a new broker id.

The operator does it and refuses what would lose messages; what can be seen from here is refused before anybody types.
An order that the operator refuses is taken back, so that it does not come true some day when nobody remembers it.
"""

import asyncio

from rocketmq_kubectl import change, confirm, resources
from rocketmq_kubectl.change import Seen
from rocketmq_kubectl.errors import NotFoundError, RefusedError, TimedOutError
from rocketmq_kubectl.look import look
from rocketmq_kubectl.picture import Picture
from rocketmq_kubectl.run import Report
from rocketmq_kubectl.session import Session
from rocketmq_operator.domain import names

FLAG = "--yes-i-delete-this-replica"
ACCEPTED_SECONDS = 20.0
"""In which the operator takes the order, or refuses it."""
REFUSED = "RebuildRefused"
"""The reason of a condition that says so."""


async def rebuild(session: Session, name: str, pod: str, *, confirmed: bool, seconds: float) -> Report:
    """Ask for it, wait until the operator has begun; with `seconds`, wait so long until the replica is back in sync."""
    body = await session.group_body(name)
    change.require_active(change.seen(body), "rebuild")
    (one,) = await look(session, [body])
    _check(one, pod)
    if not confirmed:
        confirm.typed(
            pod,
            f"All data on the volume of {pod} will be deleted and copied anew from the other replicas.\n"
            f"{one.group.name} has one copy less until that is done ({one.in_sync_text} in sync now).",
            flag=FLAG,
        )
    before = await _uid(session, pod)
    await change.patch(session, name, {"metadata": {"annotations": {names.ANNOTATION_REBUILD: pod}}})
    order = f"the rebuild of {pod}"
    now = await change.until(
        session, name, lambda seen: seen.group.rebuild != pod or _refusal(seen, pod) is not None,
        seconds=ACCEPTED_SECONDS, what=order,
    )  # fmt: skip
    if now.group.rebuild == pod and (why := _refusal(now, pod)) is not None:
        await change.patch(session, name, {"metadata": {"annotations": {names.ANNOTATION_REBUILD: None}}})
        raise RefusedError(f"the operator refuses: {why}; the order is taken back")
    if seconds > 0:
        now = await _back_in_sync(session, name, pod, before, seconds)
        return change.done(now, f"{pod} is rebuilt and in sync", pod=pod, effective=True)
    text = f"{pod} is being rebuilt; watch it with kubectl rocketmq status {name} -i 2"
    return change.done(now, text, pod=pod, effective=None)


def _refusal(now: Seen, pod: str) -> str | None:
    return next((one.message for one in now.status.conditions if one.reason == REFUSED and pod in one.message), None)


async def _uid(session: Session, pod: str) -> str | None:
    """None: there is no such pod just now."""
    try:
        return resources.pod(await session.kube.get(resources.core(session.namespace, "pods", pod))).uid
    except NotFoundError:
        return None


async def _back_in_sync(session: Session, name: str, pod: str, before: str | None, seconds: float) -> Seen:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        now = change.seen(await session.group_body(name))
        replica = next((one for one in now.status.replica_statuses if one.pod == pod), None)
        uid = await _uid(session, pod)
        if uid not in {None, before} and replica is not None and replica.in_sync and now.status.phase != "Rebuilding":
            return now
        if loop.time() >= deadline:
            raise TimedOutError(
                f"{pod} is not back in sync after {seconds:g} s; it goes on: see kubectl rocketmq status {name}"
            )
        await asyncio.sleep(change.POLL)


def _check(one: Picture, pod: str) -> None:
    replica = one.find(pod)
    if replica is None or replica.pod != pod:
        known = ", ".join(sorted(other.pod for other in one.replicas if other.pod)) or "none"
        raise NotFoundError(f"{one.group.name} has no pod {pod}: its pods are {known}")
    if replica.pod == one.master:
        raise RefusedError(
            f"{pod} is the master, its log is the one to copy from: kubectl rocketmq switchover {one.group.name} first"
        )
    others = [other for other in one.in_set if other.pod != pod and other.alive is not False]
    if not others:
        raise RefusedError(f"nobody but {pod} is in sync and alive: rebuilding it would lose messages")
