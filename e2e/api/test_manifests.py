"""What the operator makes, on a real API server: taken without a change of a second apply, pods admitted where the
restricted Pod Security Standard is enforced. Nothing here needs an operator or images: no pod is started."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from e2e.kit.cluster import Cluster
from rocketmq_operator.domain.manifests.verification.config_files import TEMPLATE_FILE
from rocketmq_resources import names
from tests.operator.manifests import cases

Object = dict[str, Any]  # JSON of Kubernetes' API

EVERYTHING: Mapping[str, list[Object]] = {
    **{f"example-{name}": objects for name, objects in cases.examples().items()},
    **{name: objects for name, objects in cases.everything().items() if name.endswith("-full")},
}
each_case = pytest.mark.parametrize("case", EVERYTHING)
APPLY = ("apply", "--server-side", f"--field-manager={names.FIELD_MANAGER}", "-o", "json", "-f", "-")


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> str:
    return cluster.namespace(level="restricted")


def in_namespace(each: Object, namespace: str) -> Object:
    """Without its owner, which is not there: Kubernetes would delete it soon."""
    metadata = {key: value for key, value in each["metadata"].items() if key != "ownerReferences"}
    return {**each, "metadata": {**metadata, "namespace": namespace}}


def listed(items: list[Object]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def marks(answer: str) -> dict[tuple[str, str], object]:
    """What moves when a spec is written, by kind and name: the generation, or the version if no other client writes. A
    claim, which is bound in the meantime, is identified by its request."""

    def mark(one: Object) -> object:
        if one["kind"] == "PersistentVolumeClaim":
            return one["metadata"]["uid"], one["spec"]["resources"]
        return one["metadata"].get("generation") or one["metadata"]["resourceVersion"]

    return {(one["kind"], one["metadata"]["name"]): mark(one) for one in json.loads(answer)["items"]}


def test_services_of_both_families_are_accepted(cluster: Cluster, namespace: str) -> None:
    """By a cluster that has one family, too: PreferDualStack asks for no more than there is."""
    policy = {"service": {"ipFamilyPolicy": "PreferDualStack"}}
    made = (
        *cases.group_objects(cases.group({**cases.GROUPS["group"], **policy, "verification": {"schedule": "@daily"}})),
        *cases.cluster_objects(cases.cluster(policy)),
        *cases.name_server_objects_of(cases.name_server(policy)),
    )
    services = [in_namespace(each, namespace) for each in made if each["kind"] == "Service"]
    try:
        for _ in range(2):
            items = json.loads(cluster.kubectl(*APPLY, input=listed(services)))["items"]
            assert [each["spec"]["ipFamilyPolicy"] for each in items] == ["PreferDualStack"] * 4
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "-f", "-", input=listed(services))


@each_case
def test_a_second_apply_writes_nothing(cluster: Cluster, namespace: str, case: str) -> None:
    """Else every look at a resource would wake up everybody who watches its objects."""
    objects = [in_namespace(each, namespace) for each in EVERYTHING[case]]
    for each in objects:
        if each["kind"] == "StatefulSet":
            each["spec"] = {**each["spec"], "replicas": 0}
    try:
        first = marks(cluster.kubectl(*APPLY, input=listed(objects)))
        assert len(first) == len(objects)
        assert marks(cluster.kubectl(*APPLY, input=listed(objects))) == first
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "-f", "-", input=listed(objects))


@each_case
def test_pods_are_admitted(cluster: Cluster, namespace: str, case: str) -> None:
    for each in EVERYTHING[case]:
        if each["kind"] == "CronJob":
            pod = named(each["spec"]["jobTemplate"]["spec"]["template"], "verify", namespace)
            pod["spec"]["serviceAccountName"] = "default"
            cluster.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(pod))
        if each["kind"] == "ConfigMap" and TEMPLATE_FILE in each["data"]:
            pod = named(json.loads(each["data"][TEMPLATE_FILE]), "executor", namespace)
            pod["spec"]["containers"][0]["image"] = "spark"  # as Spark adds it
            cluster.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(pod))
        if each["kind"] == "StatefulSet":
            pod = pod_of(each, namespace)
            pod["spec"].pop("serviceAccountName", None)  # the user's, not there
            pod["spec"].pop("priorityClassName", None)
            cluster.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(pod))


def named(template: Object, name: str, namespace: str) -> Object:
    """A pod of a template."""
    copied = json.loads(json.dumps(template))
    return {**copied, "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}}


def pod_of(stateful_set: Object, namespace: str) -> Object:
    """As the StatefulSet's controller makes it of the template."""
    template = json.loads(json.dumps(stateful_set["spec"]["template"]))
    claims = [
        {"name": claim["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
        for claim in stateful_set["spec"].get("volumeClaimTemplates", ())
    ]
    template["spec"]["volumes"] += claims
    metadata = {**template["metadata"], "name": f"{stateful_set['metadata']['name']}-0", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
