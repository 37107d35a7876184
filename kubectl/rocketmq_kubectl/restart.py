"""`restart GROUP`: every pod anew, slaves first and the master after a switchover, by the operator's rolling update."""

import asyncio

from rocketmq_kubectl import change, resources
from rocketmq_kubectl.errors import TimedOutError
from rocketmq_kubectl.run import Report
from rocketmq_kubectl.session import Session
from rocketmq_operator.domain import names


async def restart(session: Session, name: str, *, seconds: float) -> Report:
    """Ask for it; with `seconds`, wait so long until every pod is the new one and ready."""
    change.require_active(change.seen(await session.group_body(name)), "restart")
    at = session.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    now = await change.patch(session, name, {"metadata": {"annotations": {names.ANNOTATION_RESTARTED_AT: at}}})
    if now.group.spec.update_strategy == "supervised":
        session.progress(
            f"updateStrategy is supervised: the master waits until you run kubectl rocketmq switchover {name}"
        )
    if seconds > 0:
        await _all_new(session, name, at, now.group.pods_wanted, seconds)
        return change.done(now, f"{name} is restarted", restartedAt=at, effective=True)
    text = f"{name} restarts, one pod after the other; watch it with kubectl rocketmq status {name} -i 2"
    return change.done(now, text, restartedAt=at, effective=None)


async def _all_new(session: Session, name: str, at: str, wanted: int, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    selector = {"labelSelector": names.selector_text("broker", name)}
    while True:
        pods = resources.pods(await session.kube.items(resources.core(session.namespace, "pods"), selector))
        new = [pod for pod in pods if pod.annotations.get(names.ANNOTATION_RESTARTED_AT) == at and pod.ready]
        if len(new) >= wanted:
            return
        if loop.time() >= deadline:
            raise TimedOutError(
                f"{len(new)} of {wanted} pods of {name} are new and ready after {seconds:g} s; it goes on:"
                f" see kubectl rocketmq status {name}"
            )
        await asyncio.sleep(change.POLL)
