"""`switchover GROUP [BROKER_ID|POD]`: a planned change of master, asked of the master's own sidecar (HandOver).

Nothing is lost: the old master refuses sends until the new one has everything and is elected, and takes them again if
that does not come about. The gap that is shown is measured here, from the request until the new master's sidecar says
that it serves; producers see less than that.
"""

import asyncio

from rocketmq_api.replica_view import ReplicaRole
from rocketmq_kubectl.errors import NotFoundError, PluginError, RefusedError, TimedOutError, UnreachableError
from rocketmq_kubectl.look import look
from rocketmq_kubectl.picture import Picture, Replica
from rocketmq_kubectl.run import Report
from rocketmq_kubectl.session import Session, settle
from rocketmq_operator.domain.names import PORT_SIDECAR_GRPC

POLL = 0.02
SERVES_SECONDS = 15.0
"""The new master may take so long to say that it serves."""


async def switchover(session: Session, name: str, wanted: str | None, *, seconds: float) -> Report:
    """Hand mastership to `wanted` (pod or broker id; None: the best by the controllers' policy) within `seconds`."""
    (before,) = await look(session, [await session.group_body(name)])
    if before.master is None:
        raise RefusedError(f"{name} has no master to hand over from: see kubectl rocketmq status {name}")
    target = None if wanted is None else _target(before, wanted)
    if target is not None and target.pod == before.master:
        return _report(before, before.master_broker_id or 0, before.master_epoch or 0, None)

    candidates = {one.pod for one in before.in_set if one.pod is not None} if target is None else {target.pod or ""}
    async with session.sidecar(session.namespace, before.master) as client:
        # Ways to all of them are open before the clock starts: the gap has no connecting in it.
        await settle([session.forwards.address(session.namespace, pod, PORT_SIDECAR_GRPC) for pod in candidates])
        await session.ask(client.get_replica())
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            new = await session.ask(client.hand_over(None if target is None else target.broker_id, seconds=seconds))
        except UnreachableError as error:
            raise UnreachableError(f"{error}; whether it took effect: kubectl rocketmq status {name}") from error
        pod = _pod(before, new.master_broker_id)
        await _until_it_serves(session, pod, new.master_epoch)
        gap = loop.time() - began
    return _report(before, new.master_broker_id, new.master_epoch, gap)


def _target(before: Picture, wanted: str) -> Replica:
    replica = before.find(wanted)
    name = before.group.name
    if replica is None or replica.broker_id is None:
        there = ", ".join(f"{one.pod} ({one.broker_id})" for one in before.replicas if one.broker_id is not None)
        raise NotFoundError(f"{name} has no replica {wanted}: there are {there or 'none'}")
    if not replica.in_sync:
        raise RefusedError(f"{wanted} is not in the SyncStateSet and would lose messages: wait until it has caught up")
    if replica.alive is False:
        raise RefusedError(f"{wanted} is not alive: see kubectl rocketmq status {name}")
    return replica


def _pod(before: Picture, broker_id: int) -> str:
    replica = before.find(str(broker_id))
    if replica is None or replica.pod is None:
        raise NotFoundError(
            f"brokerId {broker_id} is master now, but its pod is not known: kubectl rocketmq status {before.group.name}"
        )
    return replica.pod


async def _until_it_serves(session: Session, pod: str, epoch: int) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SERVES_SECONDS
    why = "no answer yet"
    async with session.sidecar(session.namespace, pod) as client:
        while loop.time() < deadline:
            try:
                view = await session.ask(client.get_replica())
            except PluginError as error:
                why = str(error)
            else:
                why = view.ready_reason or f"it is {view.role.value} in epoch {view.master_epoch}"
                if view.role is ReplicaRole.MASTER and view.master_epoch >= epoch and not view.ready_reason:
                    return
            await asyncio.sleep(POLL)
    raise TimedOutError(f"{pod} was elected in epoch {epoch} but does not serve after {SERVES_SECONDS:g} s: {why}")


def _report(before: Picture, broker_id: int, epoch: int, gap: float | None) -> Report:
    name, replica = before.group.name, before.find(str(broker_id))
    pod = replica.pod if replica is not None else None
    if gap is None:
        text = f"{pod} (brokerId {broker_id}) is the master of {name} already, in epoch {epoch}"
    else:
        text = (
            f"{name}: {before.master} -> {pod} (brokerId {broker_id}), masterEpoch {before.master_epoch} -> {epoch};"
            f" writes stopped for {gap:.2f} s at the most"
        )
    return Report(
        f"{text}\n",
        {
            "namespace": before.group.namespace,
            "name": name,
            "changed": gap is not None,
            "oldMaster": before.master,
            "master": pod,
            "masterBrokerId": broker_id,
            "masterEpoch": epoch,
            "gapMillis": None if gap is None else round(gap * 1000),
        },
    )
