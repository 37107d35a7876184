"""Collects what is known of a resource and its objects into one frozen value, from the cache, the controllers' watches
and the sidecars.

Called by `reconciler` before every plan. Reads memory; calls over the network only sidecars that have not answered yet,
the members of the quorum when a ControllerCluster is reconciled, and the API server for Secrets and missing pods.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
import structlog

from rocketmq_api.client_tls import ClientTls
from rocketmq_operator.controllers.quorum_registry import QuorumRegistry
from rocketmq_operator.controllers.quorums import Quorum
from rocketmq_operator.controllers.sidecars import Sidecars
from rocketmq_operator.controllers.tls_files import FILES, TlsFiles
from rocketmq_operator.domain.manifests.verification.cron_jobs import candidates
from rocketmq_operator.domain.observed import (
    Claim,
    Controllers,
    CronJob,
    ObservedCluster,
    ObservedGroup,
    ObservedNameServer,
    Pod,
    Reference,
    StatefulSet,
)
from rocketmq_operator.domain.plan.groups.acting import may_act
from rocketmq_operator.domain.plan.groups.without_controllers import view_of_sidecars
from rocketmq_operator.kubernetes.broker_names import GroupName
from rocketmq_operator.kubernetes.cache import Cache, Key
from rocketmq_operator.kubernetes.ledger import Ledger
from rocketmq_operator.kubernetes.pod_refusals import PodRefusals
from rocketmq_operator.kubernetes.secrets import Secrets
from rocketmq_resources import names
from rocketmq_resources.broker_group import BrokerGroup
from rocketmq_resources.controller_cluster import ControllerCluster, parse_controller_cluster
from rocketmq_resources.decoding import SpecError
from rocketmq_resources.name_server import NameServer, parse_name_server

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Observer:
    """Observes the resources of one operator."""

    def __init__(
        self,
        *,
        cache: Cache,
        ledger: Ledger,
        quorums: QuorumRegistry,
        sidecars: Sidecars,
        tls: TlsFiles,
        secrets: Secrets,
        refusals: PodRefusals,
        namespaces: tuple[str, ...] = (),
    ) -> None:
        """`namespaces`: those that are watched; empty: all."""
        self._cache = cache
        self._ledger = ledger
        self._quorums = quorums
        self._sidecars = sidecars
        self._tls = tls
        self._secrets = secrets
        self._refusals = refusals
        self._namespaces = namespaces
        self._no_certificate: dict[str, str] = {}
        """By uid of the group: the reason that was logged last."""

    async def group(self, group: BrokerGroup) -> ObservedGroup:
        """The input of its plan."""
        key = Key("BrokerGroup", group.namespace, group.name)
        quorum = self._quorums.of_group(group) if group.fails_over else None
        if quorum is not None:
            await quorum.wait_for_answer()
        again = not group.fails_over or may_act(group, _controllers(quorum, group))
        sidecars = await self._sidecars.poll(self._pods(key), await self._certificate(group), again=again)
        bad_secrets = await self._secrets.problems(group.namespace, secrets_of_group(group))
        refused_pods = await self._refused_pods(key, group.name)
        # No await from here on: the rest is read at one moment.
        pods = self._pods(key)
        name_servers = self._name_servers(group)
        return ObservedGroup(
            group=group,
            stateful_set=self._stateful_set(key, group.name, refused_pods),
            pods=pods,
            claims=self._claims(key),
            controllers=_controllers(quorum, group)
            if group.fails_over
            else Controllers(reachable=True, group=view_of_sidecars(group, pods, sidecars)),
            controller_addr=self._controller_addr(group),
            broker_suspect_timeout_ms=self._broker_suspect_timeout_ms(group),
            namesrv_addr=group.spec.namesrv_addr or (None if name_servers is None else name_servers.namesrv_addr),
            bad_references={**self._bad_resources(group), **bad_secrets},
            acting_master_shown=None if name_servers is None else name_servers.shows_acting_masters,
            sidecars=sidecars,
            refused=self._ledger.refusals(),
            disruption_budget=self._cache.get(Key("PodDisruptionBudget", group.namespace, group.name)) is not None,
            verification_objects=frozenset(
                (kind, name)
                for kind, name in candidates(group.name)
                if self._cache.get(Key(kind, group.namespace, name)) is not None
            ),
            secret_checked=self._ledger.is_checked(f"secret {group.metadata.uid}"),
            verified_since=self._verified_since(group),
            name_holder=self._name_holder(group),
        )

    async def cluster(self, cluster: ControllerCluster) -> ObservedCluster:
        """The input of its plan."""
        key = Key("ControllerCluster", cluster.namespace, cluster.name)
        members = await self._quorums.of_cluster(cluster).members()
        bad_secrets = await self._secrets.problems(cluster.namespace, secrets_of_cluster(cluster))
        refused_pods = await self._refused_pods(key, names.controller(cluster.name))
        return ObservedCluster(
            cluster=cluster,
            stateful_set=self._stateful_set(key, names.controller(cluster.name), refused_pods),
            pods=self._pods(key),
            claims=self._claims(key),
            quorum=members,
            bad_references=bad_secrets,
            secret_checked=self._ledger.is_checked(f"secret {cluster.metadata.uid}"),
            refused=self._ledger.refusals(),
        )

    async def name_server(self, server: NameServer) -> ObservedNameServer:
        """The input of its plan."""
        key = Key("NameServer", server.namespace, server.name)
        refused_pods = await self._refused_pods(key, names.namesrv(server.name))
        return ObservedNameServer(
            name_server=server,
            stateful_set=self._stateful_set(key, names.namesrv(server.name), refused_pods),
            pods=self._pods(key),
        )

    async def _certificate(self, group: BrokerGroup) -> ClientTls | None:
        """None without a certificate, or if it cannot be read: replicas that require one then do not answer."""
        try:
            found = await self._tls.of(group)
        except OSError as error:
            reason = str(error)
            if self._no_certificate.get(group.metadata.uid) != reason:
                self._no_certificate[group.metadata.uid] = reason
                log.warning(
                    "cannot call sidecars: no certificate", namespace=group.namespace, name=group.name, reason=reason
                )
            return None
        self._no_certificate.pop(group.metadata.uid, None)
        return found

    def _pods(self, owner: Key) -> tuple[Pod, ...]:
        pods = [entry.value for entry in self._cache.children(owner, "Pod") if isinstance(entry.value, Pod)]
        return tuple(sorted(pods, key=lambda pod: pod.ordinal))

    def _claims(self, owner: Key) -> tuple[Claim, ...]:
        children = self._cache.children(owner, "PersistentVolumeClaim")
        claims = [entry.value for entry in children if isinstance(entry.value, Claim)]
        return tuple(sorted(claims, key=lambda claim: (claim.ordinal, claim.volume)))

    def _stateful_set(self, owner: Key, name: str, refused_pods: Mapping[str, str]) -> StatefulSet | None:
        found = self._known_set(owner, name)
        return found if found is None else msgspec.structs.replace(found, refused_pods=refused_pods)

    def _known_set(self, owner: Key, name: str) -> StatefulSet | None:
        entry = self._cache.get(Key("StatefulSet", owner.namespace, name))
        return entry.value if entry is not None and isinstance(entry.value, StatefulSet) else None

    async def _refused_pods(self, owner: Key, name: str) -> Mapping[str, str]:
        found = self._known_set(owner, name)
        return {} if found is None else await self._refusals.of(owner.namespace, found, self._pods(owner))

    def _verified_since(self, group: BrokerGroup) -> float | None:
        entry = self._cache.get(Key("CronJob", group.namespace, names.verification(group.name)))
        return entry.value.created if entry is not None and isinstance(entry.value, CronJob) else None

    def _name_holder(self, group: BrokerGroup) -> str | None:
        holder = self._cache.broker_names.holder(GroupName(group.namespace, group.name))
        return None if holder is None else str(holder)

    def _controller_addr(self, group: BrokerGroup) -> str | None:
        if group.controller is None:
            return group.spec.controller_addr or ""
        cluster = self._cluster(group.controller)
        return None if cluster is None else cluster.controller_addr

    def _broker_suspect_timeout_ms(self, group: BrokerGroup) -> int | None:
        cluster = None if group.controller is None else self._cluster(group.controller)
        return None if cluster is None else cluster.spec.tuning.broker_suspect_timeout_ms

    def _name_servers(self, group: BrokerGroup) -> NameServer | ControllerCluster | None:
        """The resource that has them; None: they are outside, or it does not exist."""
        if group.name_server is not None:
            body = self._cache.body(Key("NameServer", *group.name_server))
            return None if body is None else _parsed(lambda: parse_name_server(body))
        if group.embedded_name_servers and group.controller is not None:
            return self._cluster(group.controller)
        return None

    def _bad_resources(self, group: BrokerGroup) -> dict[Reference, str]:
        """Resources of ours that the group refers to: what is wrong with them."""
        found = {}
        for kind, place in (("ControllerCluster", group.controller), ("NameServer", group.name_server)):
            problem = None if place is None else self._resource_problem(kind, *place)
            if place is not None and problem is not None:
                found[Reference(kind, *place)] = problem
        return found

    def _resource_problem(self, kind: str, namespace: str, name: str) -> str | None:
        body = self._cache.body(Key(kind, namespace, name))
        if body is not None:
            try:
                parse_controller_cluster(body) if kind == "ControllerCluster" else parse_name_server(body)
            except SpecError as error:
                return f"is refused: {error}"
            return None
        if self._namespaces and namespace not in self._namespaces:
            return f"is not seen: this operator watches {', '.join(self._namespaces)}"
        others = [other for other in names.PLURALS if self._cache.body(Key(other, namespace, name)) is not None]
        return f"does not exist, only a {' and a '.join(others)} of that name" if others else ""

    def _cluster(self, reference: tuple[str, str]) -> ControllerCluster | None:
        body = self._cache.body(Key("ControllerCluster", *reference))
        return None if body is None else _parsed(lambda: parse_controller_cluster(body))


def secrets_of_group(group: BrokerGroup) -> dict[str, tuple[str, ...]]:
    """Keys by the name of each Secret that the spec names."""
    spec = group.spec
    found: dict[str, tuple[str, ...]] = {}
    if spec.replication_secret_name is not None:
        found[spec.replication_secret_name] = (names.KEY_REPLICATION_SECRET,)
    if spec.grpc_tls_secret_name is not None:
        found[spec.grpc_tls_secret_name] = (*found.get(spec.grpc_tls_secret_name, ()), *FILES)
    return found


def secrets_of_cluster(cluster: ControllerCluster) -> dict[str, tuple[str, ...]]:
    """Keys by the name of each Secret that the spec names."""
    spec = cluster.spec
    found: dict[str, tuple[str, ...]] = {}
    if spec.raft_secret_name is not None:
        found[spec.raft_secret_name] = (names.KEY_RAFT_SECRET,)
    if spec.grpc_tls_secret_name is not None:
        found[spec.grpc_tls_secret_name] = (*found.get(spec.grpc_tls_secret_name, ()), *FILES)
    return found


def _controllers(quorum: Quorum | None, group: BrokerGroup) -> Controllers:
    """What they report now."""
    if quorum is None:
        return Controllers(missing=True)
    view = quorum.groups.get(group.broker_name)
    if view is not None and view.cluster_name != group.cluster_name:
        view = None
    return Controllers(reachable=quorum.synced, group=view)


def _parsed(parse: Callable[[], T]) -> T | None:
    try:
        return parse()
    except SpecError:
        return None  # the status of that resource has the reason
