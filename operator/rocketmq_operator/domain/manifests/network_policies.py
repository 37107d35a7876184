"""Who may talk to which port. Ingress only; what pods may call is the cluster's affair.

Probes and `kubectl port-forward` come from the pod's own node and are not subject to policies.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from rocketmq_operator.domain import names
from rocketmq_operator.domain.manifests.objects import Owner
from rocketmq_operator.domain.spec.common import Json

OPERATOR_NAME: Final = "rocketmq-operator"
"""Value of app.kubernetes.io/name on the operator's pods."""


class Access(msgspec.Struct, frozen=True):
    """What the policies must know of the surroundings."""

    enabled: bool = True
    """False: no policies are made."""
    operator_namespace: str = ""
    """Empty: the operator may be in any namespace."""
    metrics_from: tuple[Json, ...] = ({"namespaceSelector": {}},)
    """NetworkPolicyPeers that may read metrics: anywhere in the cluster unless restricted; empty: nobody."""


def broker_policy(owner: Owner, name: str, access: Access, *, verified: bool = False) -> tuple[Json, ...]:
    """Clients, name servers and controllers reach the broker, from wherever they are; replicas replicate; the operator
    and, where there is one, the verification ask sidecars."""
    asking = [_operator(access)]
    if verified:
        asking.append({"podSelector": {"matchLabels": names.selector("verify", owner.metadata.name)}})
    return _policy(
        owner,
        name,
        access,
        (
            _from(None, names.PORT_BROKER, names.PORT_BROKER_VIP),
            _from([_pods(owner)], names.PORT_HA),
            _from(asking, names.PORT_SIDECAR_GRPC),
            _from(access.metrics_from, names.PORT_SIDECAR_METRICS),
        ),
    )


def controller_policy(owner: Owner, name: str, access: Access, *, name_server: bool) -> tuple[Json, ...]:
    """Members talk Raft; brokers of ours in any namespace, the operator, and pods of the same namespace (mqadmin) reach
    the controllers; clients the name servers in them."""
    ours: Json = {
        "namespaceSelector": {},
        "podSelector": {"matchLabels": {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_COMPONENT: "broker"}},
    }
    rules = [
        _from([{"podSelector": {}}, ours, _operator(access)], names.PORT_CONTROLLER),
        _from([_pods(owner)], names.PORT_CONTROLLER_RAFT),
        _from([_pods(owner), _operator(access)], names.PORT_CONTROLLER_GRPC),
        _from(access.metrics_from, names.PORT_CONTROLLER_METRICS),
    ]
    if name_server:
        rules.insert(0, _from(None, names.PORT_NAMESRV))
    return _policy(owner, name, access, rules)


def name_server_policy(owner: Owner, name: str, access: Access) -> tuple[Json, ...]:
    """Everybody asks for routes."""
    rules = (_from(None, names.PORT_NAMESRV), _from(access.metrics_from, names.PORT_NAMESRV_METRICS))
    return _policy(owner, name, access, rules)


def verification_policy(owner: Owner, name: str, access: Access) -> tuple[Json, ...]:
    """Driver and executors talk to each other."""
    rules = (_from([_pods(owner)], names.PORT_SPARK_DRIVER, names.PORT_SPARK_BLOCKS),)
    return _policy(owner, name, access, rules)


def _policy(owner: Owner, name: str, access: Access, rules: Sequence[Json]) -> tuple[Json, ...]:
    if not access.enabled:
        return ()
    ingress = [rule for rule in rules if rule.get("from") != []]  # which Kubernetes takes for everybody
    spec = {"podSelector": {"matchLabels": owner.selector}, "policyTypes": ["Ingress"], "ingress": ingress}
    return (owner.made("networking.k8s.io/v1", "NetworkPolicy", name, spec=spec),)


def _from(peers: Sequence[Json] | None, *ports: int) -> Json:
    """Into `ports` from `peers`; None: from everywhere, also outside the cluster."""
    rule: Json = {"ports": [{"port": port, "protocol": "TCP"} for port in ports]}
    return rule if peers is None else {**rule, "from": list(peers)}


def _pods(owner: Owner) -> Json:
    return {"podSelector": {"matchLabels": owner.selector}}


def _operator(access: Access) -> Json:
    namespaces: Json = (
        {"matchLabels": {"kubernetes.io/metadata.name": access.operator_namespace}} if access.operator_namespace else {}
    )
    return {"namespaceSelector": namespaces, "podSelector": {"matchLabels": {names.LABEL_NAME: OPERATOR_NAME}}}
