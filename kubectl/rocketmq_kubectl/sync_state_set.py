"""`get-sync-state-set [GROUP]`: mqadmin's getSyncStateSet for people who know pods. Called by `cli` and `-i`."""

from collections.abc import Sequence

from rocketmq_kubectl import output, picture, resources
from rocketmq_kubectl.errors import UnreachableError
from rocketmq_kubectl.look import look
from rocketmq_kubectl.output import Document
from rocketmq_kubectl.picture import Picture
from rocketmq_kubectl.run import Report
from rocketmq_kubectl.session import Session

HEADERS = ("POD", "BROKER-ID", "ROLE", "IN-SYNC", "ALIVE", "ADDRESS", "MAX-OFFSET", "LAG")


async def get_sync_state_set(session: Session, name: str | None, *, all_namespaces: bool = False) -> Report:
    """One group, or all of the namespace (or of all namespaces)."""
    pictures = await look(session, await bodies(session, name, all_namespaces=all_namespaces))
    return Report(table(pictures, named=all_namespaces), document(pictures), unasked(pictures))


async def bodies(session: Session, name: str | None, *, all_namespaces: bool) -> Sequence[resources.Json]:
    """The BrokerGroups that a command is about, by namespace and name."""
    if name is not None:
        return [await session.group_body(name)]
    path = resources.collection("BrokerGroup", None if all_namespaces else session.namespace)
    return await session.kube.items(path)


def unasked(pictures: Sequence[Picture]) -> tuple[UnreachableError, ...]:
    """One problem for each group that is shown by its status only."""
    return tuple(
        UnreachableError(f"{one.group.namespace}/{one.group.name} is shown {one.remark}: {one.problem}")
        for one in pictures
        if one.remark is not None
    )


def table(pictures: Sequence[Picture], *, named: bool = False) -> str:
    """A headline and the replicas of each group; with `named`, the headline has the namespace."""
    if not pictures:
        return "No broker groups found.\n"
    return "\n".join(_group(one, named=named) for one in pictures)


def _group(one: Picture, *, named: bool) -> str:
    where = f"{one.group.namespace}/{one.group.name}" if named else one.group.name
    broker_name = f" (brokerName {one.group.broker_name})" if one.group.broker_name != one.group.name else ""
    lines = f"{where}{broker_name}: {headline(one)}\n"
    if one.remark is not None:
        lines += f"  ! {one.remark}\n"
    if not one.replicas:
        return lines
    rows = [
        (
            replica.pod, replica.broker_id, replica.role, replica.in_sync, replica.alive, replica.address,
            replica.max_offset, replica.lag,
        )
        for replica in sorted(one.replicas, key=lambda replica: not replica.in_sync)
    ]  # fmt: skip
    return lines + "".join(f"  {line}\n" for line in output.table(HEADERS, rows).splitlines())


def headline(one: Picture) -> str:
    """Who leads, in which epochs, and how many are in sync."""
    if one.master_broker_id is None:
        return f"no master, {one.in_sync_text} in sync"
    return (
        f"master {one.master_text} (brokerId {one.master_broker_id}), masterEpoch {one.master_epoch},"
        f" syncStateSetEpoch {one.sync_state_set_epoch}, {one.in_sync_text} in sync"
    )


def document(pictures: Sequence[Picture]) -> Document:
    """All groups."""
    return {"groups": [picture.document(one) for one in pictures]}
