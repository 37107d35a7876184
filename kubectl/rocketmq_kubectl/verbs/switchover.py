"""`switchover GROUP [BROKER_ID|POD]`: a planned change of master by a call to the master's own sidecar (HandOver).

No message is lost: the old master refuses sends until the new one has everything and is elected, and accepts them again
if that fails. The gap is measured here, from the request until the new master's sidecar reports that it serves;
producers see a shorter one.
"""

import asyncio

from rocketmq_api.replica_view import ReplicaRole
from rocketmq_kubectl.cluster.group_queries import query_groups
from rocketmq_kubectl.cluster.picture import Picture, Replica
from rocketmq_kubectl.cluster.session import Session, gather_results
from rocketmq_kubectl.errors import CommandRefusedError, NotFoundError, PluginError, TimedOutError, UnreachableError
from rocketmq_kubectl.run import Report
from rocketmq_resources.names import PORT_SIDECAR_GRPC

POLL = 0.02
SERVES_SECONDS = 15.0
"""Seconds until the new master has to serve."""


async def switchover(session: Session, name: str, wanted: str | None, *, seconds: float) -> Report:
    """Make `wanted` master (pod or broker id; None: the best by the controllers' policy) within `seconds`."""
    (before,) = await query_groups(session, [await session.group_body(name)])
    if not before.group.fails_over:
        assert before.problem is not None
        raise before.problem
    if before.master is None:
        raise CommandRefusedError(f"{name} has no master: see kubectl rocketmq status {name}")
    target = None if wanted is None else _target(before, wanted)
    if target is not None and target.pod == before.master:
        return _report(before, before.master_broker_id or 0, before.master_epoch or 0, None)

    able = {replica.pod for replica in before.in_set if replica.pod is not None and replica.alive is not False}
    candidates = able if target is None else {target.pod or ""}
    async with session.sidecar(session.namespace, before.master) as client:
        # Open the port-forwards before the clock starts, so that the gap does not include connecting.
        await gather_results(
            [session.forwards.address(session.namespace, pod, PORT_SIDECAR_GRPC) for pod in candidates]
        )
        await session.call(client.get_replica())
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            new = await session.call(client.hand_over(None if target is None else target.broker_id, seconds=seconds))
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
        there = ", ".join(
            f"{known.pod} ({known.broker_id})" for known in before.replicas if known.broker_id is not None
        )
        raise NotFoundError(f"{name} has no replica {wanted}: there are {there or 'none'}")
    if not replica.in_sync:
        raise CommandRefusedError(
            f"{wanted} is not in the SyncStateSet and would lose messages: wait until it has caught up"
        )
    if replica.alive is False:
        raise CommandRefusedError(f"{wanted} is not alive: see kubectl rocketmq status {name}")
    return replica


def _pod(before: Picture, broker_id: int) -> str:
    replica = before.find(str(broker_id))
    if replica is None or replica.pod is None:
        raise NotFoundError(
            f"brokerId {broker_id} is master now, but its pod is unknown: kubectl rocketmq status {before.group.name}"
        )
    return replica.pod


async def _until_it_serves(session: Session, pod: str, epoch: int) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SERVES_SECONDS
    why = "no answer yet"
    async with session.sidecar(session.namespace, pod) as client:
        while loop.time() < deadline:
            try:
                view = await session.call(client.get_replica())
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
        text = f"{pod} (brokerId {broker_id}) is already the master of {name}, in epoch {epoch}"
    else:
        text = (
            f"{name}: {before.master} -> {pod} (brokerId {broker_id}), masterEpoch {before.master_epoch} -> {epoch};"
            f" writes stopped for at most {gap:.2f} s"
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
