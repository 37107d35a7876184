"""`get-sync-state-set [GROUP]`: mqadmin's getSyncStateSet with pods. Called by `cli` and `-i`."""

from collections.abc import Sequence

from rocketmq_kubectl import output
from rocketmq_kubectl.cluster import picture, resources
from rocketmq_kubectl.cluster.group_queries import query_groups
from rocketmq_kubectl.cluster.picture import Picture
from rocketmq_kubectl.cluster.session import Session
from rocketmq_kubectl.errors import UnreachableError
from rocketmq_kubectl.output import Document
from rocketmq_kubectl.run import Report

HEADERS = ("POD", "BROKER-ID", "ROLE", "IN-SYNC", "ALIVE", "ADDRESS", "MAX-OFFSET", "LAG")


async def get_sync_state_set(session: Session, name: str | None, *, all_namespaces: bool = False) -> Report:
    """One group, or all of the namespace (or of all namespaces)."""
    pictures = await query_groups(session, await bodies(session, name, all_namespaces=all_namespaces))
    return Report(table(pictures, named=all_namespaces), document(pictures), stale_problems(pictures))


async def bodies(session: Session, name: str | None, *, all_namespaces: bool) -> Sequence[resources.Json]:
    """The BrokerGroups of a command."""
    if name is not None:
        return [await session.group_body(name)]
    path = resources.collection("BrokerGroup", None if all_namespaces else session.namespace)
    return await session.kube.items(path)


def stale_problems(pictures: Sequence[Picture]) -> tuple[UnreachableError, ...]:
    """One problem for each group that is shown from its stored status because its controllers do not answer."""
    return tuple(
        UnreachableError(f"{picture.group.namespace}/{picture.group.name} is shown {picture.remark}: {picture.problem}")
        for picture in pictures
        if picture.stale
    )


def table(pictures: Sequence[Picture], *, named: bool = False) -> str:
    """A headline and the replicas of each group; with `named`, the headline has the namespace."""
    if not pictures:
        return "No broker groups found.\n"
    return "\n".join(_group(picture, named=named) for picture in pictures)


def _group(picture: Picture, *, named: bool) -> str:
    where = f"{picture.group.namespace}/{picture.group.name}" if named else picture.group.name
    broker_name = (
        f" (brokerName {picture.group.broker_name})" if picture.group.broker_name != picture.group.name else ""
    )
    lines = f"{where}{broker_name}: {headline(picture)}\n"
    if picture.remark is not None:
        why = "" if picture.stale else f"{picture.problem}; "
        lines += f"  ! {why}{picture.remark}\n"
    if not picture.replicas:
        return lines
    rows = [
        (
            replica.pod, replica.broker_id, replica.role, replica.in_sync, replica.alive, replica.address,
            replica.max_offset, replica.lag,
        )
        for replica in sorted(picture.replicas, key=lambda replica: not replica.in_sync)
    ]  # fmt: skip
    return lines + "".join(f"  {line}\n" for line in output.table(HEADERS, rows).splitlines())


def headline(picture: Picture) -> str:
    """Master, epochs, and the number of replicas in sync."""
    if picture.master_broker_id is None:
        return f"no master, {picture.in_sync_text} in sync"
    return (
        f"master {picture.master_text} (brokerId {picture.master_broker_id}), masterEpoch {picture.master_epoch},"
        f" syncStateSetEpoch {picture.sync_state_set_epoch}, {picture.in_sync_text} in sync"
    )


def document(pictures: Sequence[Picture]) -> Document:
    return {"groups": [picture.document(shown) for shown in pictures]}
