"""The quorum of each group, the current addresses of its members, and the groups to reconcile when it changes.

Members of a ControllerCluster are called at their pods' addresses, without DNS and its caches; controllers outside at
the addresses in the spec. Used by `observe` and `execute`.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from rocketmq_api.group_view import GroupView
from rocketmq_formats.addresses import format_address, parse_address, parse_addresses
from rocketmq_operator.controllers.quorums import Address, Locate, Quorum
from rocketmq_operator.controllers.tls_files import TlsFiles
from rocketmq_operator.domain.observed import Pod
from rocketmq_operator.kubernetes.cache import Cache, Key
from rocketmq_resources import names
from rocketmq_resources.broker_group import BrokerGroup
from rocketmq_resources.controller_cluster import ControllerCluster, parse_controller_cluster
from rocketmq_resources.decoding import SpecError

GRPC_ABOVE_REMOTING: Final = 2
"""A controller's gRPC port, unless it is set."""

log = structlog.get_logger(__name__)
Name = tuple[str, str, str]
"""`("", "", addresses)` of outside controllers, else kind, namespace and name."""


class QuorumRegistry:
    """All quorums that one operator watches."""

    def __init__(self, cache: Cache, enqueue: Callable[[Key], None], tls: TlsFiles) -> None:
        self._cache = cache
        self._enqueue = enqueue
        self._tls = tls
        self._quorums: dict[Name, Quorum] = {}
        self._groups: dict[Key, tuple[Name, str]] = {}
        self._members: dict[tuple[Name, str], set[Key]] = {}

    def of_group(self, group: BrokerGroup) -> Quorum | None:
        """The group's quorum, watched from now on; None: its ControllerCluster does not exist."""
        key = Key("BrokerGroup", group.namespace, group.name)
        if group.controller is None:
            addresses = grpc_addresses(group)
            name: Name = ("", "", ";".join(addresses))
            self._belongs(key, name, group.broker_name)
            return self._quorum(name, _fixed(addresses))
        cluster = Key("ControllerCluster", *group.controller)
        self._belongs(key, _name(cluster), group.broker_name)
        if self._cache.body(cluster) is None:
            return None
        return self._quorum(_name(cluster), self._locator(cluster))

    def view(self, key: Key) -> tuple[bool, GroupView | None] | None:
        """What is known of a group: whether its quorum is watched, and the quorum's view of it."""
        place = self._groups.get(key)
        quorum = None if place is None else self._quorums.get(place[0])
        return None if place is None or quorum is None else (quorum.synced, quorum.groups.get(place[1]))

    def of_cluster(self, cluster: ControllerCluster) -> Quorum:
        """The cluster's quorum, watched from now on."""
        key = Key("ControllerCluster", cluster.namespace, cluster.name)
        return self._quorum(_name(key), self._locator(key))

    def forget_group(self, key: Key) -> None:
        known = self._groups.pop(key, None)
        if known is not None:
            waiting = self._members.get(known)
            if waiting is not None:
                waiting.discard(key)
                if not waiting:
                    del self._members[known]

    async def tidy(self) -> None:
        """End watches that no group needs; called with each resync."""
        needed = {name for name, _ in self._groups.values()}
        needed |= {_name(key) for key in self._cache.keys("ControllerCluster")}
        for name in [name for name in self._quorums if name not in needed]:
            await self._quorums.pop(name).stop()

    async def refresh(self) -> None:
        """Read the current offsets of all groups."""
        await asyncio.gather(*(quorum.refresh() for quorum in list(self._quorums.values())))

    async def stop(self) -> None:
        for quorum in self._quorums.values():
            await quorum.stop()
        self._quorums.clear()

    def _quorum(self, name: Name, locate: Locate) -> Quorum:
        quorum = self._quorums.get(name)
        if quorum is None:
            quorum = self._quorums[name] = Quorum("/".join(name), locate, lambda broker: self._changed(name, broker))
        return quorum

    def _belongs(self, key: Key, name: Name, broker_name: str) -> None:
        place = (name, broker_name)
        if self._groups.get(key) == place:
            return
        self.forget_group(key)
        self._groups[key] = place
        self._members.setdefault(place, set()).add(key)

    def _changed(self, name: Name, broker_name: str | None) -> None:
        if broker_name is not None:
            for key in self._members.get((name, broker_name), ()):
                self._enqueue(key)
            return
        for key, (quorum, _) in self._groups.items():
            if quorum == name:
                self._enqueue(key)
        if name[0]:
            self._enqueue(Key(*name))

    def _locator(self, cluster: Key) -> Locate:
        async def locate() -> Address | None:
            body = self._cache.body(cluster)
            if body is None:
                return None
            try:
                parsed = parse_controller_cluster(body)
            except SpecError:
                return None
            pods = [entry.value for entry in self._cache.children(cluster, "Pod") if isinstance(entry.value, Pod)]
            addresses = tuple(
                format_address(pod.ip, names.PORT_CONTROLLER_GRPC)
                for pod in sorted(pods, key=lambda pod: pod.ordinal)
                if pod.ip and not pod.deleting
            )
            return Address(addresses, await self._tls.of(parsed))

        return locate


def _name(key: Key) -> Name:
    return key.kind, key.namespace, key.name


def grpc_addresses(group: BrokerGroup) -> tuple[str, ...]:
    """gRPC addresses of controllers outside: from the spec, else derived from their remoting ports."""
    if group.spec.controller_grpc_addr:
        return parse_addresses(group.spec.controller_grpc_addr)
    controllers = map(parse_address, parse_addresses(group.spec.controller_addr or ""))
    return tuple(format_address(host, port + GRPC_ABOVE_REMOTING) for host, port in controllers)


def _fixed(addresses: tuple[str, ...]) -> Locate:
    async def locate() -> Address | None:
        return Address(addresses)

    return locate
