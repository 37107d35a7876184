"""`restart GROUP`: the operator restarts every pod, slaves first and the master after a switchover, if there is one."""

import asyncio

from rocketmq_kubectl.cluster import resources
from rocketmq_kubectl.cluster.session import Session
from rocketmq_kubectl.errors import TimedOutError
from rocketmq_kubectl.run import Report
from rocketmq_kubectl.verbs import change
from rocketmq_resources import names


async def restart(session: Session, name: str, *, seconds: float) -> Report:
    """Request it; with `seconds`, wait until every pod is restarted and ready."""
    change.require_active(change.snapshot(await session.group_body(name)), "restart")
    at = session.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    now = await change.patch(session, name, {"metadata": {"annotations": {names.ANNOTATION_RESTARTED_AT: at}}})
    if now.group.spec.update_strategy == "supervised":
        step = f"run kubectl rocketmq switchover {name}" if now.group.fails_over else "delete its pod"
        session.progress(f"updateStrategy is supervised: the master waits until you {step}")
    if seconds > 0:
        await _all_new(session, name, at, now.group.pods_wanted, seconds)
        return change.done(now, f"{name} is restarted", restartedAt=at, effective=True)
    text = f"{name} restarts pod by pod; watch it with kubectl rocketmq status {name} -i 2"
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
                f"{len(new)} of {wanted} pods of {name} are restarted and ready after {seconds:g} s; it continues:"
                f" see kubectl rocketmq status {name}"
            )
        await asyncio.sleep(change.POLL)
