"""Makes `picture`s of groups: calls every quorum once, all at the same time, through port-forwards.

Called by the verbs that show groups, and by those that check a group before a change.
"""

import asyncio
from collections.abc import Mapping, Sequence

from rocketmq_api.group_view import GroupView
from rocketmq_kubectl.cluster import picture, resources
from rocketmq_kubectl.cluster.picture import Picture, Source
from rocketmq_kubectl.cluster.resources import Pod
from rocketmq_kubectl.cluster.session import Session
from rocketmq_kubectl.errors import PluginError, UnreachableError
from rocketmq_kubectl.output import seconds_since
from rocketmq_resources import names
from rocketmq_resources.broker_group import BrokerGroup

Views = dict[tuple[str, str], GroupView | PluginError | None]
"""By namespace and name of the resource; None: no broker of it is registered."""


async def query_groups(session: Session, bodies: Sequence[Mapping[str, object]]) -> list[Picture]:
    """The current state of groups, in the given order."""
    quorums: dict[object, list[BrokerGroup]] = {}
    for body in bodies:
        group = resources.broker_group(body)
        key = group.controller or (group.spec.controller_grpc_addr, group.name)
        quorums.setdefault(key, []).append(group)
    answers, pods = await asyncio.gather(
        asyncio.gather(*(_views_of(session, groups) for groups in quorums.values())),
        asyncio.gather(*(_pods(session, body) for body in bodies)),
    )
    views: Views = {}
    for answer in answers:
        views |= answer
    pictures = [_picture(session, body, own, views) for body, own in zip(bodies, pods, strict=True)]
    together = zip(pictures, bodies, pods, strict=True)
    return list(await asyncio.gather(*(_with_volumes(session, *found, views) for found in together)))


async def _with_volumes(
    session: Session, shown: Picture, body: Mapping[str, object], pods: Sequence[Pod], views: Views
) -> Picture:
    """Find replicas without a pod by the annotations of their volumes."""
    if shown.source is not Source.CONTROLLERS or all(replica.pod is not None for replica in shown.replicas):
        return shown
    group = shown.group
    selector = {"labelSelector": names.selector_text("broker", group.name)}
    try:
        claims = await session.kube.items(resources.core(group.namespace, "persistentvolumeclaims"), selector)
    except PluginError:
        return shown
    return _picture(session, body, pods, views, volumes=resources.pods_by_volume(claims))


def _picture(
    session: Session,
    body: Mapping[str, object],
    pods: Sequence[Pod],
    views: Views,
    *,
    volumes: Mapping[int, str] | None = None,
) -> Picture:
    group = resources.broker_group(body)
    view = views[group.namespace, group.name]
    age = seconds_since(resources.status_written(body), session.now())
    if isinstance(view, PluginError):
        return picture.from_status(body, age, view)
    return picture.from_controllers(body, view, pods, age, volumes=volumes or {})


async def _views_of(session: Session, groups: Sequence[BrokerGroup]) -> Views:
    """Call the quorum of these groups."""
    try:
        async with session.controllers(groups[0]) as client:
            if len(groups) == 1:
                found = {groups[0].broker_name: await session.call(client.get_group(groups[0].broker_name))}
            else:
                found = {view.broker_name: view for view in await session.call(client.snapshot())}
    except PluginError as error:
        return {(group.namespace, group.name): error for group in groups}
    return {(group.namespace, group.name): found.get(group.broker_name) for group in groups}


async def _pods(session: Session, body: Mapping[str, object]) -> tuple[Pod, ...]:
    """Empty without the right to read them; then addresses are shown instead of pods."""
    group = resources.broker_group(body)
    try:
        return await session.pods(group.namespace, "broker", group.name)
    except UnreachableError:
        raise
    except PluginError:
        return ()
