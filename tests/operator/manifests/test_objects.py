"""What holds for every object, container and port, whatever the resource says."""

import itertools
import json
from collections.abc import Iterator

import msgspec
import pytest

from rocketmq_operator.domain.manifests.controllers import controller_cluster_objects
from rocketmq_operator.domain.manifests.network_policies import Access
from rocketmq_resources import names
from tests.operator.manifests import cases
from tests.operator.manifests.cases import Object

EVERYTHING = cases.everything()
each_case = pytest.mark.parametrize("objects", EVERYTHING.values(), ids=EVERYTHING)


@each_case
def test_owned_and_labelled(objects: list[Object]) -> None:
    for each in objects:
        metadata = each["metadata"]
        [owner] = metadata["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (cases.UID, True, True)
        assert owner["apiVersion"] == names.API_VERSION
        assert metadata["namespace"] == "shop"
        assert metadata["labels"][names.LABEL_MANAGED_BY] == names.MANAGED_BY


@each_case
def test_applied_in_an_order_that_pods_can_start_in(objects: list[Object]) -> None:
    kinds = [each["kind"] for each in objects]
    assert kinds[-1] == "StatefulSet"
    assert len({(each["kind"], each["metadata"]["name"]) for each in objects}) == len(objects)


@each_case
def test_same_spec_same_bytes(objects: list[Object]) -> None:
    again = cases.everything()
    [name] = [name for name, made in EVERYTHING.items() if made is objects]
    assert json.dumps(again[name]) == json.dumps(objects)


@each_case
def test_admitted_by_the_restricted_standard(objects: list[Object]) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/, row by row."""
    pod = cases.pod_spec(objects)
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers", "ephemeralContainers"} & pod.keys()
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] != 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False  # they would set ROCKETMQ_... by the names of other people's Services
    for volume in pod["volumes"]:
        assert volume.keys() - {"name"} <= {"configMap", "secret", "emptyDir"}
    for container in pod["containers"]:
        rights = container["securityContext"]
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["privileged"] is False
        assert rights["readOnlyRootFilesystem"] is True
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert all("hostPort" not in port for port in container["ports"])


def test_ids_are_the_platforms_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenShift's restricted-v2 refuses ids outside the namespace's range. Nothing but the ids may differ."""
    fixed = {**cases.everything(), **cases.examples()}
    monkeypatch.setattr(cases, "IMAGES", msgspec.structs.replace(cases.IMAGES, fixed_ids=False))
    assigned = {**cases.everything(), **cases.examples()}
    for name, objects in assigned.items():
        assert objects != fixed[name]
        assert not IDS & set(keys_in(objects))
        assert objects == without_ids(fixed[name])
    assert "executor.yaml" in set(keys_in(assigned["brokergroup-production"]))  # its template is a text


IDS = {"runAsUser", "runAsGroup", "fsGroup"}


def keys_in(value: object) -> Iterator[str]:
    match value:
        case dict():
            for key, each in value.items():
                yield key
                yield from keys_in(json.loads(each) if key == "executor.yaml" else each)
        case list() | tuple():
            for each in value:
                yield from keys_in(each)


def without_ids(value: object) -> object:
    match value:
        case dict():
            return {key: without_ids(each) for key, each in value.items() if key not in IDS}
        case list() | tuple():
            return type(value)(without_ids(each) for each in value)
        case str() if value.startswith("{"):
            return msgspec.json.format(json.dumps(without_ids(json.loads(value))), indent=1) + "\n"
    return value


@each_case
def test_every_port_is_named_once_and_served_once(objects: list[Object]) -> None:
    ports = [port for container in cases.pod_spec(objects)["containers"] for port in container["ports"]]
    assert len({port["name"] for port in ports}) == len({port["containerPort"] for port in ports}) == len(ports)
    service = one_service(objects)
    assert {(port["targetPort"], port["port"]) for port in service["ports"]} == {
        (port["name"], port["containerPort"]) for port in ports
    }
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True


@each_case
def test_the_network_policy_speaks_of_every_port_once(objects: list[Object]) -> None:
    ingress = cases.one(objects, "NetworkPolicy")["spec"]["ingress"]
    allowed = [port["port"] for rule in ingress for port in rule["ports"]]
    containers = cases.pod_spec(objects)["containers"]
    assert sorted(allowed) == sorted(port["containerPort"] for each in containers for port in each["ports"])


@each_case
def test_selectors_select_the_pods_and_nothing_else_of_ours(objects: list[Object]) -> None:
    template = cases.one(objects, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    selectors = list(all_selectors(objects))
    assert selectors
    assert all(selector.items() <= template.items() for selector in selectors)
    assert len({json.dumps(selector, sort_keys=True) for selector in selectors}) == 1


def test_selectors_of_different_components_are_apart() -> None:
    """A ControllerCluster, a NameServer and a BrokerGroup may have the same name."""
    chosen = {json.dumps(names.selector(component, "main")) for component in ("broker", "controller", "namesrv")}
    assert len(chosen) == 3


@each_case
def test_mounts_have_their_volumes(objects: list[Object]) -> None:
    pod, stateful = cases.pod_spec(objects), cases.one(objects, "StatefulSet")
    claims = {claim["metadata"]["name"] for claim in stateful["spec"].get("volumeClaimTemplates", ())}
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert not claims & volumes
    mounted = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
    assert mounted == claims | volumes
    for container in pod["containers"]:
        paths = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert len(set(paths)) == len(paths)
    for volume in pod["volumes"]:
        if "configMap" in volume:
            assert volume["configMap"]["name"] == cases.one(objects, "ConfigMap")["metadata"]["name"]


@each_case
def test_probes_ask_ports_that_exist(objects: list[Object]) -> None:
    pod = cases.pod_spec(objects)
    numbers = {port["containerPort"] for container in pod["containers"] for port in container["ports"]}
    for container in pod["containers"]:
        own = {port["name"] for port in container["ports"]}
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = container[kind]
            port = (probe.get("httpGet") or probe["tcpSocket"])["port"]
            assert port in (numbers if isinstance(port, int) else own), (container["name"], kind)
            assert probe["timeoutSeconds"] <= 5


@each_case
def test_users_add_and_do_not_replace(objects: list[Object]) -> None:
    """podTemplate and config come beside what the operator says, never instead of it."""
    stateful = cases.one(objects, "StatefulSet")
    template = stateful["spec"]["template"]
    assert template["metadata"]["labels"].items() >= stateful["metadata"]["labels"].items()
    for container in template["spec"]["containers"]:
        variables = [entry["name"] for entry in container["env"]]
        assert variables[:3] == ["POD_NAME", "POD_IP", "POD_INDEX"], "values after them refer to them"
        assert len(set(variables)) == len(variables)
        assert "valueFrom" in container["env"][0]


def test_without_access_rules_for_the_operator_or_metrics() -> None:
    made = [dict(each) for each in controller_cluster_objects(cases.cluster({}), cases.IMAGES, Access(enabled=False))]
    assert "NetworkPolicy" not in {each["kind"] for each in made}
    closed = Access(operator_namespace="ops", metrics_from=())
    made = [dict(each) for each in controller_cluster_objects(cases.cluster({}), cases.IMAGES, closed)]
    ingress = cases.one(made, "NetworkPolicy")["spec"]["ingress"]
    assert names.PORT_CONTROLLER_METRICS not in {port["port"] for rule in ingress for port in rule["ports"]}
    [grpc] = [rule for rule in ingress if rule["ports"][0]["port"] == names.PORT_CONTROLLER_GRPC]
    assert {"kubernetes.io/metadata.name": "ops"} in [
        peer.get("namespaceSelector", {}).get("matchLabels") for peer in grpc["from"]
    ]


@pytest.mark.parametrize("watched", [(), ("team-b", "team-a")])
def test_controllers_are_reached_by_our_brokers_tools_that_say_so_members_and_the_operator(
    watched: tuple[str, ...],
) -> None:
    """Not by every pod of the namespace, nor by a pod with our labels in another user's namespace."""
    access = Access(operator_namespace="ops", namespaces=watched)
    made = [dict(each) for each in controller_cluster_objects(cases.cluster({}), cases.IMAGES, access)]
    ingress = cases.one(made, "NetworkPolicy")["spec"]["ingress"]
    [remoting] = [rule for rule in ingress if rule["ports"][0]["port"] == names.PORT_CONTROLLER]
    members, brokers, tools, operator = remoting["from"]
    pods = cases.one(made, "StatefulSet")["spec"]["selector"]
    assert members == {"podSelector": {"matchLabels": pods["matchLabels"]}}
    assert tools == {"podSelector": {"matchLabels": {"rocketmq-ha.io/controller-client": "true"}}}
    assert brokers["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "broker"
    only = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team-a", "team-b"]}
    assert brokers["namespaceSelector"] == ({"matchExpressions": [only]} if watched else {})
    assert operator["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "ops"}}


def all_selectors(objects: list[Object]) -> Iterator[Object]:
    for each in objects:
        spec = each.get("spec", {})
        match each["kind"]:
            case "Service":
                yield spec["selector"]
            case "StatefulSet" | "PodDisruptionBudget":
                yield spec["selector"]["matchLabels"]
            case "NetworkPolicy":
                yield spec["podSelector"]["matchLabels"]


def one_service(objects: list[Object]) -> Object:
    spec: Object = cases.one(objects, "Service")["spec"]
    return spec


def test_names_fit() -> None:
    """The longest names leave room for what Kubernetes appends: 63 for a label's value with the revision's hash."""
    longest = {
        "controller": names.controller("c" * names.MAX_CONTROLLER_CLUSTER_NAME),
        "namesrv": names.namesrv("n" * names.MAX_NAME_SERVER_NAME),
        "group": "g" * names.MAX_GROUP_NAME,
    }
    hashes = itertools.repeat("-" + "x" * 10)
    assert all(len(name + suffix) <= 63 for name, suffix in zip(longest.values(), hashes, strict=False))


@each_case
def test_a_quota_asks_nothing_of_containers_that_a_user_cannot_give(objects: list[Object]) -> None:
    """A ResourceQuota of limits refuses a pod if one container has none; each has a field of the spec for them."""
    for container in cases.pod_spec(objects)["containers"]:
        amounts = {**container["resources"].get("requests", {}), **container["resources"].get("limits", {})}
        assert amounts.keys() >= {"cpu", "memory"}
    assert not {"initContainers", "ephemeralContainers"} & cases.pod_spec(objects).keys()


@each_case
def test_no_name_needs_the_domain_of_the_cluster(objects: list[Object]) -> None:
    """It may be another one than cluster.local."""
    assert "cluster.local" not in json.dumps(objects)
