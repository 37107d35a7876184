"""Asks for `picture`s of groups: every quorum once, all of them at the same time, through port-forwards.

Called by the verbs that show groups and by those that look before and after a change.
"""

import asyncio
from collections.abc import Mapping, Sequence

from rocketmq_api.group_view import GroupView
from rocketmq_kubectl import picture, resources
from rocketmq_kubectl.errors import PluginError, UnreachableError
from rocketmq_kubectl.output import seconds_since
from rocketmq_kubectl.picture import Picture, Source
from rocketmq_kubectl.resources import Pod
from rocketmq_kubectl.session import Session
from rocketmq_operator.domain import names
from rocketmq_operator.domain.spec.broker_group import BrokerGroup

Views = dict[tuple[str, str], GroupView | PluginError | None]
"""By namespace and name of the resource; None: the controllers know no broker of it."""


async def look(session: Session, bodies: Sequence[Mapping[str, object]]) -> list[Picture]:
    """The groups now, in the order given; every quorum is asked once, all of them together."""
    quorums: dict[object, list[BrokerGroup]] = {}
    for body in bodies:
        group = resources.broker_group(body)
        key = group.controller or (group.spec.controller_grpc_addr, group.name)
        quorums.setdefault(key, []).append(group)
    answers, pods = await asyncio.gather(
        asyncio.gather(*(_ask(session, groups) for groups in quorums.values())),
        asyncio.gather(*(_pods(session, body) for body in bodies)),
    )
    views: Views = {}
    for answer in answers:
        views |= answer
    pictures = [_picture(session, body, own, views) for body, own in zip(bodies, pods, strict=True)]
    together = zip(pictures, bodies, pods, strict=True)
    return list(await asyncio.gather(*(_with_volumes(session, *one, views) for one in together)))


async def _with_volumes(
    session: Session, shown: Picture, body: Mapping[str, object], pods: Sequence[Pod], views: Views
) -> Picture:
    """Where a replica's pod is not there, its volume still says which one it is; asked only then."""
    if shown.source is not Source.CONTROLLERS or all(one.pod is not None for one in shown.replicas):
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


async def _ask(session: Session, groups: Sequence[BrokerGroup]) -> Views:
    """What the quorum of these groups says of each."""
    try:
        async with session.controllers(groups[0]) as client:
            if len(groups) == 1:
                found = {groups[0].broker_name: await session.ask(client.get_group(groups[0].broker_name))}
            else:
                found = {view.broker_name: view for view in await session.ask(client.snapshot())}
    except PluginError as error:
        return {(group.namespace, group.name): error for group in groups}
    return {(group.namespace, group.name): found.get(group.broker_name) for group in groups}


async def _pods(session: Session, body: Mapping[str, object]) -> tuple[Pod, ...]:
    """None where they may not be read: addresses are shown without pods then."""
    group = resources.broker_group(body)
    try:
        return await session.pods(group.namespace, "broker", group.name)
    except UnreachableError:
        raise
    except PluginError:
        return ()
