"""crds/*.yaml on a real API server: what is refused and with which words, defaults, columns, scale, explain.

Nothing here needs an operator. Resources that have to be stored are paused, so that one that runs leaves them alone.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml

from e2e.api.crd_cases import ACCEPTED, LEAST, RULES, STRUCTURE, Accepted, Refused, Spec
from e2e.kit.cluster import Cluster, KubectlError
from rocketmq_resources import names, reserved_keys
from rocketmq_resources.broker_group import BrokerGroup, parse_broker_group
from rocketmq_resources.controller_cluster import ControllerCluster, parse_controller_cluster
from rocketmq_resources.name_server import NameServer, parse_name_server

ROOT = Path(__file__).parents[2]

KINDS: tuple[names.Kind, ...] = ("BrokerGroup", "ControllerCluster", "NameServer")
PARSE: Mapping[str, Callable[[Mapping[str, object]], BrokerGroup | ControllerCluster | NameServer]] = {
    "BrokerGroup": parse_broker_group,
    "ControllerCluster": parse_controller_cluster,
    "NameServer": parse_name_server,
}


ALL: Sequence[Refused | Accepted] = [*STRUCTURE, *RULES, *ACCEPTED]
CASES = {(case.name if case.name != "case" else f"case-{number}"): case for number, case in enumerate(ALL)}
"""By the name of the resource, since one call asks about many."""
REFUSED_NAMES = [name for name, case in CASES.items() if isinstance(case, Refused)]
ACCEPTED_NAMES = [name for name, case in CASES.items() if isinstance(case, Accepted)]


class Namespace:
    """kubectl within one namespace of a cluster that has the CRDs."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster, self.name = cluster, name
        self._stored: dict[str, str] = {}

    def kubectl(self, *arguments: str, stdin: object = None) -> str:
        text = None if stdin is None else json.dumps(stdin)
        return self._cluster.kubectl("-n", self.name, *arguments, input=text)

    def refusal(self, *arguments: str, stdin: object = None) -> str:
        """What kubectl said when it refused."""
        with pytest.raises(KubectlError) as refused:
            self.kubectl(*arguments, stdin=stdin)
        return str(refused.value)

    def stored(self, kind: names.Kind, spec: Spec) -> str:
        """Name of a paused resource with this spec, made once."""
        key = json.dumps([kind, spec], sort_keys=True)
        if key not in self._stored:
            name = self._stored[key] = f"stored-{len(self._stored)}"
            self.kubectl("create", "-f", "-", stdin=resource(kind, name, {**spec, "paused": True}))
        return self._stored[key]


def resource(kind: names.Kind, name: str, change: Mapping[str, Any]) -> dict[str, Any]:
    """The least resource of its kind with `change` over it; None takes a field away."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": kind,
        "metadata": {"name": name},
        "spec": merged(dict(LEAST[kind]), change),
    }


def merged(old: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """JSON merge patch (RFC 7396)."""
    new = dict(old)
    for key, value in change.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, Mapping):
            inner = old.get(key)
            new[key] = merged(inner if isinstance(inner, Mapping) else {}, value)
        else:
            new[key] = value
    return new


def listed(items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Namespace:
    cluster.kubectl("apply", "-f", str(ROOT / "crds"))
    for plural in names.PLURALS.values():
        cluster.kubectl("wait", "--for=condition=Established", f"crd/{plural}.{names.GROUP}", "--timeout=30s")
    return Namespace(cluster, cluster.namespace())


class Answers(NamedTuple):
    """Of the API server to all cases, asked in few calls: `refused` by name, `accepted` as they would be stored."""

    refused: Mapping[str, str]
    accepted: Mapping[str, Mapping[str, object]]


@pytest.fixture(scope="module")
def answers(namespace: Namespace) -> Answers:
    created = [resource(case.kind, name, case.change) for name, case in CASES.items() if case.before is None]
    changed = [(name, case, case.before) for name, case in CASES.items() if case.before is not None]
    old = [resource(case.kind, name, {**before, "paused": True}) for name, case, before in changed]
    namespace.kubectl("create", "-f", "-", stdin=listed(old))
    new = [{**body, "spec": merged(body["spec"], case.change)} for body, (_, case, _) in zip(old, changed, strict=True)]
    asked = ("--dry-run=server", "--validate=false", "-f", "-")  # or kubectl gives up at the first wrong type by itself
    said = namespace.refusal("create", *asked, stdin=listed(created))
    said += "\n" + namespace.refusal("replace", *asked, stdin=listed(new))
    refused = {found[1]: found[0] for found in re.finditer(r'^.* "([^" ]+)" is invalid: .*$', said, re.MULTILINE)}
    accepted: dict[str, Mapping[str, object]] = {}
    for verb, bodies in (("create", created), ("replace", new)):
        fine = listed([body for body in bodies if body["metadata"]["name"] in ACCEPTED_NAMES])
        shown = namespace.kubectl(verb, "--dry-run=server", "-o", "yaml", "-f", "-", stdin=fine)
        accepted.update((body["metadata"]["name"], body) for body in yaml.safe_load_all(shown))
    return Answers(refused, accepted)


@pytest.mark.parametrize("name", REFUSED_NAMES)
def test_refused(answers: Answers, name: str) -> None:
    case = CASES[name]
    assert isinstance(case, Refused)
    assert case.because in answers.refused.get(name, "accepted"), case


@pytest.mark.parametrize("name", ACCEPTED_NAMES)
def test_accepted(answers: Answers, name: str) -> None:
    case = CASES[name]
    assert name not in answers.refused, case
    PARSE[case.kind](answers.accepted[name])


def test_a_field_that_does_not_exist_is_refused(namespace: Namespace) -> None:
    body = resource("BrokerGroup", "case", {"repicas": 3})
    assert 'unknown field "spec.repicas"' in namespace.refusal("create", "--dry-run=server", "-f", "-", stdin=body)


@pytest.mark.parametrize(
    ("kind", "reserved"),
    [
        ("BrokerGroup", reserved_keys.BROKER),
        ("ControllerCluster", reserved_keys.CONTROLLER),
        ("NameServer", reserved_keys.NAME_SERVER),
    ],
)
def test_reserved_keys_are_refused_all_at_once(
    namespace: Namespace, kind: names.Kind, reserved: Mapping[str, str]
) -> None:
    body = resource(kind, "case", {"config": dict.fromkeys(reserved, "1")})
    said = namespace.refusal("create", "--dry-run=server", "-f", "-", stdin=body)
    assert [key for key in reserved if f"config.{key} cannot be set" not in said] == []


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_are_those_of_the_operator(namespace: Namespace, kind: names.Kind) -> None:
    body = resource(kind, "case", {})
    shown = json.loads(namespace.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=body))
    body["metadata"]["namespace"] = namespace.name
    parsed, said = PARSE[kind](shown), PARSE[kind](body)
    assert parsed.spec == said.spec
    assert without_empty(shown["spec"]) == without_empty(msgspec.to_builtins(said.spec))


def without_empty(value: Any) -> Any:
    """Without what is absent or empty, and so says nothing."""
    if not isinstance(value, dict):
        return value
    shown = {key: without_empty(inner) for key, inner in value.items()}
    return {key: inner for key, inner in shown.items() if inner not in (None, (), {})}


def test_status_is_not_written_with_the_resource(namespace: Namespace) -> None:
    body = resource("BrokerGroup", "case", {}) | {"status": {"phase": "Running"}}
    shown = json.loads(namespace.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=body))
    assert "status" not in shown


def test_columns_of_a_group(namespace: Namespace) -> None:
    name = namespace.stored("BrokerGroup", {"priorities": [1]})
    condition = {"reason": "x", "message": "", "lastTransitionTime": "2026-11-21T00:00:00Z"}
    status = {
        "master": f"{name}-1",
        "actingMaster": f"{name}-2",
        "masterEpoch": 7,
        "inSync": "2/3",
        "phase": "Degraded",
        "image": "example.org/broker:1",
        "conditions": [
            {"type": "Available", "status": "True", **condition},
            {"type": "Ready", "status": "False", **condition},
            {"type": "LogsAligned", "status": "False", **condition, "reason": "Different"},
        ],
        "replicaStatuses": [{"pod": f"{name}-1", "brokerId": 2, "maxOffset": 2**40, "alive": True}],
    }
    patch = json.dumps({"status": status})
    namespace.kubectl("patch", "bg", name, "--subresource=status", "--type=merge", "-p", patch)
    heads, row = table(namespace.kubectl("get", "bg", name))
    assert heads == ["NAME", "READY", "MASTER", "EPOCH", "INSYNC", "PHASE", "AGE"]
    assert row[:-1] == [name, "False", f"{name}-1", "7", "2/3", "Degraded"]
    heads, row = table(namespace.kubectl("get", "brokergroup", name, "-o", "wide"))
    assert heads[7:] == ["ACTING", "ENGINE", "REPLICAS", "DURABILITY", "CLUSTER", "IMAGE", "LOGS"]
    assert row[7:] == [f"{name}-2", "native", "3", "strict", "DefaultCluster", "example.org/broker:1", "Different"]


def test_columns_of_controllers_and_name_servers(namespace: Namespace) -> None:
    cluster = namespace.stored("ControllerCluster", {})
    status = {"leader": f"{cluster}-controller-0", "term": 4, "members": "3/3", "phase": "Running"}
    patch = json.dumps({"status": status})
    namespace.kubectl("patch", "cc", cluster, "--subresource=status", "--type=merge", "-p", patch)
    heads, row = table(namespace.kubectl("get", "cc", cluster))
    assert heads == ["NAME", "READY", "LEADER", "TERM", "MEMBERS", "PHASE", "AGE"]
    assert row[1:-1] == [f"{cluster}-controller-0", "4", "3/3", "Running"]  # no condition yet: an empty cell
    name_server = namespace.stored("NameServer", {})
    patch = json.dumps({"status": {"ready": "2/2", "phase": "Running"}})
    namespace.kubectl("patch", "rns", name_server, "--subresource=status", "--type=merge", "-p", patch)
    heads, row = table(namespace.kubectl("get", "rns", name_server))
    assert heads == ["NAME", "READY", "REPLICAS", "PHASE", "AGE"]
    assert row[1:-1] == ["2/2", "Running"]


def table(text: str) -> tuple[list[str], list[str]]:
    """Heads and the only row of what kubectl get printed; empty cells are left out."""
    heads, row = text.splitlines()
    return heads.split(), row.split()


def test_all_kinds_have_one_category(namespace: Namespace) -> None:
    stored = [namespace.stored(kind, {}) for kind in KINDS]
    listed = namespace.kubectl("get", names.CATEGORY, "-o", "name").split()
    for kind, name in zip(KINDS, stored, strict=True):
        assert f"{kind.lower()}.{names.GROUP}/{name}" in listed


def test_scale(namespace: Namespace) -> None:
    name = namespace.stored("BrokerGroup", {"replicas": 3, "updateStrategy": "supervised"})
    namespace.kubectl("scale", "bg", name, "--replicas=5")
    assert namespace.kubectl("get", "bg", name, "-o", "jsonpath={.spec.replicas}") == "5"
    assert "durability strict" in namespace.refusal("scale", "bg", name, "--replicas=1")
    assert "less than or equal to 9" in namespace.refusal("scale", "bg", name, "--replicas=10")
    status = {"replicas": 5, "selector": names.selector_text("broker", name)}
    patch = json.dumps({"status": status})
    namespace.kubectl("patch", "bg", name, "--subresource=status", "--type=merge", "-p", patch)
    scale = json.loads(
        namespace.kubectl(
            "get", "--raw", f"/apis/{names.API_VERSION}/namespaces/{namespace.name}/brokergroups/{name}/scale"
        )
    )
    assert scale["status"] == status
    name_server = namespace.stored("NameServer", {"replicas": 2})
    namespace.kubectl("scale", "rns", name_server, "--replicas=3")
    cluster = namespace.stored("ControllerCluster", {})
    assert namespace.refusal("scale", "cc", cluster, "--replicas=5")


def test_entries_of_two_appliers_are_merged_by_name(namespace: Namespace) -> None:
    body = resource("BrokerGroup", "merged", {"paused": True, "podTemplate": {"env": [{"name": "A", "value": "1"}]}})
    namespace.kubectl("apply", "--server-side", "--field-manager=one", "-f", "-", stdin=body)
    other = {**body, "spec": {"podTemplate": {"env": [{"name": "B", "value": "2"}]}}}
    namespace.kubectl("apply", "--server-side", "--field-manager=two", "-f", "-", stdin=other)
    shown = namespace.kubectl("get", "bg", "merged", "-o", "jsonpath={.spec.podTemplate.env[*].name}")
    assert shown == "A B"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("brokergroup", "one RocketMQ broker as a group of replicas"),
        ("bg.spec.durability", "ENUM:"),
        ("bg.spec.failover.leaseTimeoutMs", "How long a master needs no further answer"),
        ("bg.status.replicaStatuses.lag", "Bytes that its log is shorter"),
        ("cc.spec.tuning.enableElectUncleanMaster", "Loses"),
        ("rns.spec.scheduling.antiAffinity", "apart where possible"),
    ],
)
def test_explain_shows_the_meaning(namespace: Namespace, path: str, text: str) -> None:
    assert text in namespace.kubectl("explain", path)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_examples_are_accepted(namespace: Namespace, path: Path) -> None:
    namespace.kubectl("apply", "--dry-run=server", "-f", str(path))
