"""Which clients may connect to which port. Ingress only; the cluster decides about egress.

Probes and `kubectl port-forward` come from the pod's own node and are not subject to policies.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from rocketmq_operator.domain.manifests.objects import Owner
from rocketmq_resources import names
from rocketmq_resources.decoding import Json

OPERATOR_NAME: Final = "rocketmq-operator"
"""Value of app.kubernetes.io/name on the operator's pods."""


class Access(msgspec.Struct, frozen=True):
    """Facts about the installation that the policies need."""

    enabled: bool = True
    """False: no policies are created."""
    operator_namespace: str = ""
    """Empty: the operator may be in any namespace."""
    namespaces: tuple[str, ...] = ()
    """Namespaces that the operator watches; empty: all. Needed because any user can set labels in another namespace."""
    metrics_from: tuple[Json, ...] = ({"namespaceSelector": {}},)
    """NetworkPolicyPeers that may read metrics: anywhere in the cluster unless restricted; empty: none."""


def broker_policy(owner: Owner, name: str, access: Access, *, verified: bool = False) -> tuple[Json, ...]:
    """Clients, name servers and controllers reach the broker from anywhere; replicas reach each other; the operator and
    the verification (if any) reach sidecars."""
    clients = [_operator(access)]
    if verified:
        clients.append({"podSelector": {"matchLabels": names.selector("verify", owner.metadata.name)}})
    return _policy(
        owner,
        name,
        access,
        (
            _from(None, names.PORT_BROKER, names.PORT_BROKER_VIP),
            _from([_pods(owner)], names.PORT_HA),
            _from(clients, names.PORT_SIDECAR_GRPC),
            _from(access.metrics_from, names.PORT_SIDECAR_METRICS),
        ),
    )


def controller_policy(owner: Owner, name: str, access: Access, *, name_server: bool) -> tuple[Json, ...]:
    """Members reach each other. Our brokers in the namespaces of the operator, the operator itself, and pods of the
    same namespace with the label for tools reach the controllers; clients reach embedded name servers."""
    tools: Json = {"podSelector": {"matchLabels": {names.LABEL_CONTROLLER_CLIENT: "true"}}}
    rules = [
        _from([_pods(owner), _brokers(access), tools, _operator(access)], names.PORT_CONTROLLER),
        _from([_pods(owner)], names.PORT_CONTROLLER_RAFT),
        _from([_pods(owner), _operator(access)], names.PORT_CONTROLLER_GRPC),
        _from(access.metrics_from, names.PORT_CONTROLLER_METRICS),
    ]
    if name_server:
        rules.insert(0, _from(None, names.PORT_NAMESRV))
    return _policy(owner, name, access, rules)


def name_server_policy(owner: Owner, name: str, access: Access) -> tuple[Json, ...]:
    """All clients ask for routes."""
    rules = (_from(None, names.PORT_NAMESRV), _from(access.metrics_from, names.PORT_NAMESRV_METRICS))
    return _policy(owner, name, access, rules)


def verification_policy(owner: Owner, name: str, access: Access) -> tuple[Json, ...]:
    """Driver and executors reach each other."""
    rules = (_from([_pods(owner)], names.PORT_SPARK_DRIVER, names.PORT_SPARK_BLOCKS),)
    return _policy(owner, name, access, rules)


def _policy(owner: Owner, name: str, access: Access, rules: Sequence[Json]) -> tuple[Json, ...]:
    if not access.enabled:
        return ()
    ingress = [rule for rule in rules if rule.get("from") != []]  # an empty list would allow all peers
    spec = {"podSelector": {"matchLabels": owner.selector}, "policyTypes": ["Ingress"], "ingress": ingress}
    return (owner.new_object("networking.k8s.io/v1", "NetworkPolicy", name, spec=spec),)


def _from(peers: Sequence[Json] | None, *ports: int) -> Json:
    """Into `ports` from `peers`; None: from everywhere, also outside the cluster."""
    rule: Json = {"ports": [{"port": port, "protocol": "TCP"} for port in ports]}
    return rule if peers is None else {**rule, "from": list(peers)}


def _pods(owner: Owner) -> Json:
    return {"podSelector": {"matchLabels": owner.selector}}


def _brokers(access: Access) -> Json:
    namespaces: Json = {}
    if access.namespaces:
        watched = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": sorted(access.namespaces)}
        namespaces = {"matchExpressions": [watched]}
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_COMPONENT: "broker"}
    return {"namespaceSelector": namespaces, "podSelector": {"matchLabels": labels}}


def _operator(access: Access) -> Json:
    namespaces: Json = (
        {"matchLabels": {"kubernetes.io/metadata.name": access.operator_namespace}} if access.operator_namespace else {}
    )
    return {"namespaceSelector": namespaces, "podSelector": {"matchLabels": {names.LABEL_NAME: OPERATOR_NAME}}}
