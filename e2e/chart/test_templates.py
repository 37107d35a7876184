"""What the chart renders, with nothing chosen and with everything: no cluster is asked."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml

from e2e.chart.release import CHART, EVERYTHING, KUBE_VERSION, HelmError, Manifest, rendered, run, sets

CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "Namespace", "PriorityClass"}
VARIANTS: dict[str, Sequence[str]] = {
    "default": (),
    "everything": EVERYTHING,
    "all namespaces": ("watchAllNamespaces=true",),
    "two namespaces": ("watchNamespaces={messaging,orders}",),
    "no rights, no account": ("rbac.create=false", "serviceAccount.create=false", "serviceAccount.name=theirs"),
    "one pod": ("replicas=1",),
    "no hooks": ("releaseFinalizers.enabled=false",),
}


@pytest.fixture(params=VARIANTS, scope="module")
def objects(request: pytest.FixtureRequest) -> list[Manifest]:
    return rendered(*VARIANTS[request.param])


def pod_specs(objects: Sequence[Manifest]) -> Iterator[tuple[str, Manifest]]:
    for one in objects:
        if one["kind"] == "Pod":
            yield one["metadata"]["name"], one["spec"]
        elif "template" in one.get("spec", {}):
            yield one["metadata"]["name"], one["spec"]["template"]["spec"]


def of_kind(objects: Sequence[Manifest], kind: str, *, hooks: bool = False) -> list[Manifest]:
    return [one for one in objects if one["kind"] == kind and (hooks or not hook(one))]


def hook(one: Manifest) -> str | None:
    found: str | None = one["metadata"].get("annotations", {}).get("helm.sh/hook")
    return found


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_lint(values: Sequence[str]) -> None:
    run("lint", "--strict", str(CHART), "--kube-version", KUBE_VERSION, *sets(values))


def test_pods_are_restricted(objects: list[Manifest]) -> None:
    found = dict(pod_specs(objects))
    assert found
    for spec in found.values():
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 1000
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
            assert container["resources"]["requests"]["cpu"]
        assert all(volume.keys() <= {"name", "emptyDir"} for volume in spec.get("volumes", []))


IDS = {"runAsUser", "runAsGroup", "fsGroup"}


def test_no_pod_has_ids_where_the_platform_assigns_them() -> None:
    """OpenShift's restricted-v2 refuses others than those of the namespace's range."""
    fixed, assigned = (dict(pod_specs(rendered(*values))) for values in ((), ("fixedIds=false",)))
    assert assigned.keys() == fixed.keys()
    for name, spec in assigned.items():
        context = fixed[name]["securityContext"]
        assert spec["securityContext"] == {key: value for key, value in context.items() if key not in IDS}
        assert not any(IDS & container["securityContext"].keys() for container in spec["containers"])
    assert environment(rendered())["OPERATOR_FIXED_IDS"] == "true"
    assert environment(rendered("fixedIds=false"))["OPERATOR_FIXED_IDS"] == "false"


def test_without_the_value_ids_stay() -> None:
    """As with `helm upgrade --reuse-values`, which knows no newer values."""
    assert dict(pod_specs(rendered("fixedIds=null"))).keys() == dict(pod_specs(rendered())).keys()
    for spec in dict(pod_specs(rendered("fixedIds=null"))).values():
        assert spec["securityContext"].keys() >= IDS


def test_rules_have_no_wildcards_and_no_list_of_secrets(objects: list[Manifest]) -> None:
    for role in (one for one in objects if one["kind"] in {"Role", "ClusterRole"}):
        for rule in role["rules"]:
            assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]
            if "secrets" in rule["resources"]:
                assert set(rule["verbs"]) == {"get", "create"}
            assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])
            assert not {"pods/exec", "pods/attach", "nodes"} & set(rule["resources"])


def test_names_begin_with_the_release(objects: list[Manifest]) -> None:
    names = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert [pair for pair in names if not pair[1].startswith("mq-rocketmq-ha")] == []
    places = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in objects]
    assert len(set(places)) == len(places)


def test_every_object_has_namespace_and_labels(objects: list[Manifest]) -> None:
    for one in objects:
        assert one["kind"] in CLUSTER_WIDE or one["metadata"]["namespace"] in {"messaging", "orders"}
        assert one["metadata"]["labels"]["app.kubernetes.io/part-of"] == "rocketmq-ha"


def test_nothing_of_the_whole_cluster_by_default() -> None:
    for values in (VARIANTS["default"], VARIANTS["two namespaces"]):
        assert not {one["kind"] for one in rendered(*values)} & CLUSTER_WIDE


def test_a_role_in_each_watched_namespace() -> None:
    objects = rendered("watchNamespaces={orders,messaging}")
    for kind in ("Role", "RoleBinding"):
        places = {(one["metadata"]["namespace"], one["metadata"]["name"]) for one in of_kind(objects, kind)}
        assert places - {("messaging", "mq-rocketmq-ha-test")} == {
            ("messaging", "mq-rocketmq-ha-operator"),
            ("messaging", "mq-rocketmq-ha-operator-lease"),
            ("orders", "mq-rocketmq-ha-operator"),
        }
    assert environment(objects)["OPERATOR_NAMESPACES"] == "messaging,orders"


def test_all_namespaces_need_a_cluster_role() -> None:
    objects = rendered("watchAllNamespaces=true")
    (role,) = of_kind(objects, "ClusterRole")
    (namespaced,) = [one for one in of_kind(rendered(), "Role") if one["metadata"]["name"] == "mq-rocketmq-ha-operator"]
    assert role["rules"] == namespaced["rules"]
    (binding,) = of_kind(objects, "ClusterRoleBinding")
    assert binding["subjects"][0]["namespace"] == "messaging"
    assert {one["metadata"]["name"] for one in of_kind(objects, "Role")} == {
        "mq-rocketmq-ha-operator-lease",
        "mq-rocketmq-ha-test",
    }
    assert environment(objects)["OPERATOR_NAMESPACES"] == ""


def environment(objects: Sequence[Manifest]) -> dict[str, Any]:
    (deployment,) = of_kind(objects, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}


def test_the_operator_as_it_is_by_default() -> None:
    objects = rendered()
    (deployment,) = of_kind(objects, "Deployment")
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert deployment["spec"]["replicas"] == 2
    assert container["image"] == f"rocketmq-ha/operator:{version}"
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {"health": 8080, "metrics": 8081}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}
    assert "preferredDuringSchedulingIgnoredDuringExecution" in pod["spec"]["affinity"]["podAntiAffinity"]
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert selector.items() <= pod["metadata"]["labels"].items()
    for kind in ("PodDisruptionBudget", "NetworkPolicy"):
        (one,) = of_kind(objects, kind)
        spec = one["spec"]
        assert (spec.get("selector") or spec["podSelector"])["matchLabels"] == selector
    variables = environment(objects)
    assert variables["ROCKETMQ_HA_IMAGE_TAG"] == version
    assert variables["OPERATOR_POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}


def test_pods_of_hooks_are_not_the_operators(objects: list[Manifest]) -> None:
    (deployment,) = of_kind(objects, "Deployment")
    selector = deployment["spec"]["selector"]["matchLabels"]
    for one in objects:
        if hook(one) and one["kind"] in {"Job", "Pod"}:
            labels = (
                one["metadata"]["labels"] if one["kind"] == "Pod" else one["spec"]["template"]["metadata"]["labels"]
            )
            assert not selector.items() <= labels.items()


def test_hooks_leave_nothing_behind() -> None:
    objects = rendered()
    hooks = [one for one in objects if hook(one)]
    assert {one["kind"] for one in hooks if hook(one) == "pre-delete"} == {
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "Job",
    }
    for one in hooks:
        policy = one["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
        assert "before-hook-creation" in policy
        assert "hook-succeeded" in policy
    assert {one["kind"] for one in hooks if hook(one) == "test"} == {"Pod"}
    assert not [one for one in rendered("releaseFinalizers.enabled=false") if hook(one) == "pre-delete"]


def test_one_pod_has_no_budget() -> None:
    assert of_kind(rendered("replicas=1"), "PodDisruptionBudget") == []


def test_everything_that_was_chosen_is_there() -> None:
    objects = rendered(*EVERYTHING)
    (deployment,) = of_kind(objects, "Deployment")
    pod = deployment["spec"]["template"]
    assert pod["metadata"]["labels"]["tier"] == "control"
    assert pod["metadata"]["annotations"]["note"] == "on the pod"
    assert pod["spec"]["priorityClassName"] == "system-cluster-critical"
    assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert environment(objects)["OPERATOR_LEASE_SECONDS"] == "20"
    assert environment(objects)["ROCKETMQ_HA_IMAGE_APACHE_BROKER"] == "example.org/apache-broker:5.3.3"
    account = of_kind(objects, "ServiceAccount")[0]
    assert account["metadata"]["annotations"] == {"note": "on the account"}
    assert all(one["metadata"]["labels"]["team"] == "messaging" for one in objects)
    monitors = of_kind(objects, "PodMonitor")
    assert [one["metadata"]["labels"]["release"] for one in monitors] == ["prometheus"] * 2
    assert monitors[1]["spec"]["namespaceSelector"] == {"matchNames": ["messaging"]}
    (policy,) = of_kind(objects, "NetworkPolicy")
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert {one["metadata"]["name"] for one in of_kind(objects, "ClusterRole")} == {
        "mq-rocketmq-ha-view",
        "mq-rocketmq-ha-edit",
    }


def test_alerts_are_those_of_the_file() -> None:
    written = yaml.safe_load((CHART / "alerts" / "rocketmq-ha.yaml").read_text())["groups"]
    base = "https://runbooks.example.org/failure-modes"
    (rule,) = of_kind(
        rendered(
            "metrics.prometheusRule.enabled=true",
            f"metrics.prometheusRule.runbookBaseUrl={base}",
            "metrics.prometheusRule.alertLabels.team=messaging",
            "metrics.prometheusRule.disabled={RocketMQDiskFillingUp}",
        ),
        "PrometheusRule",
    )
    rules = {one["alert"]: one for group in rule["spec"]["groups"] for one in group["rules"]}
    assert [group["name"] for group in rule["spec"]["groups"]] == [group["name"] for group in written]
    expected = {one["alert"]: one for group in written for one in group["rules"]}
    assert expected.keys() - rules.keys() == {"RocketMQDiskFillingUp"}
    for name, one in rules.items():
        assert one["expr"] == expected[name]["expr"]
        assert one["labels"] == {**expected[name]["labels"], "team": "messaging"}
        assert one["annotations"]["runbook_url"] == f"{base}#{name.lower()}"
        assert one["annotations"]["description"] == expected[name]["annotations"]["description"]


def test_the_dashboard_is_the_file() -> None:
    (made,) = of_kind(rendered("metrics.dashboard.enabled=true"), "ConfigMap")
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(made["data"]["rocketmq-ha.json"]) == json.loads(
        (CHART / "dashboards" / "rocketmq-ha.json").read_text()
    )


def test_a_group_with_the_release_knows_its_controllers_and_name_servers() -> None:
    objects = rendered("controllerCluster.enabled=true", "nameServer.enabled=true", "brokerGroup.enabled=true")
    (group,) = of_kind(objects, "BrokerGroup")
    assert group["spec"] == {
        "controllerRef": {"name": of_kind(objects, "ControllerCluster")[0]["metadata"]["name"]},
        "nameServerRef": {"name": of_kind(objects, "NameServer")[0]["metadata"]["name"]},
    }
    (elsewhere,) = of_kind(
        rendered("brokerGroup.enabled=true", "brokerGroup.spec.controllerRef.name=theirs"), "BrokerGroup"
    )
    assert elsewhere["spec"] == {"controllerRef": {"name": "theirs"}}
    (alone,) = of_kind(
        rendered("brokerGroup.enabled=true", "brokerGroup.spec.failover.mode=none", "brokerGroup.spec.namesrvAddr=n:1"),
        "BrokerGroup",
    )
    assert "controllerRef" not in alone["spec"]


def test_ip_families_of_the_release_are_those_of_resources_that_set_none() -> None:
    objects = rendered(
        "controllerCluster.enabled=true",
        "nameServer.enabled=true",
        "brokerGroup.enabled=true",
        "ipFamilyPolicy=PreferDualStack",
        "ipFamilies={IPv6,IPv4}",
        "nameServer.spec.service.ipFamilies={IPv4}",
    )
    both = {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]}
    for kind in ("ControllerCluster", "BrokerGroup"):
        (one,) = of_kind(objects, kind)
        assert one["spec"]["service"] == both
    (server,) = of_kind(objects, "NameServer")
    assert server["spec"]["service"] == {**both, "ipFamilies": ["IPv4"]}


def test_long_names_stay_within_what_kubernetes_and_the_operator_take() -> None:
    long = "a" * 53
    objects = rendered(
        "controllerCluster.enabled=true", "nameServer.enabled=true", "brokerGroup.enabled=true", release=long
    )
    assert max(len(one["metadata"]["name"]) for one in objects) <= 63
    assert len(of_kind(objects, "BrokerGroup")[0]["metadata"]["name"]) <= 50
    assert len(of_kind(objects, "ControllerCluster")[0]["metadata"]["name"]) <= 40
    assert len(of_kind(objects, "NameServer")[0]["metadata"]["name"]) <= 42


REFUSED = {
    "replica=2": "additional properties 'replica' not allowed",
    "replicas=9": "at '/replicas': maximum: got 9, want 5",
    "logLevel=loud": "at '/logLevel': value must be one of 'debug', 'info', 'warning', 'error'",
    "watchNamespaces={A_b}": "at '/watchNamespaces/0': 'A_b' does not match pattern",
    "watchNamespaces=messaging": "at '/watchNamespaces': got string, want array",
    "metrics.podMonitor.interval=15": "at '/metrics/podMonitor/interval': got number, want string",
    "metrics.podMonitor.every=15s": "at '/metrics/podMonitor': additional properties 'every' not allowed",
    "ipFamilyPolicy=DualStack": "at '/ipFamilyPolicy': value must be one of '', 'SingleStack', 'PreferDualStack'",
    "ipFamilies={ipv6}": "at '/ipFamilies/0': value must be one of 'IPv4', 'IPv6'",
    "controllerCluster.enabled=perhaps": "at '/controllerCluster/enabled': got string, want boolean",
    "image.repository=": "at '/image/repository'",
    "image.repository=x/y:latest": "at '/image/repository'",
    "extraEnv[0].nam=X": "at '/extraEnv/0'",
    "resources.requests.cpu=null,resources.request.cpu=1": "additional properties 'request' not allowed",
    "brokerGroup.enabled=true": "set controllerCluster.enabled too, or say in brokerGroup.spec.controllerRef",
    "controllerCluster.enabled=true,watchNamespaces={orders}": "would lie in messaging, which is not in watchNamesp",
    "watchAllNamespaces=true,watchNamespaces={orders}": "watchAllNamespaces and watchNamespaces exclude each other",
    "metrics.prometheusRule.enabled=true,metrics.prometheusRule.disabled={NoSuch}": "there is no alert NoSuch",
}


@pytest.mark.parametrize("values", REFUSED)
def test_wrong_values_are_refused_by_name(values: str) -> None:
    with pytest.raises(HelmError) as refused:
        run("template", "mq", str(CHART), "-n", "messaging", "--kube-version", KUBE_VERSION, "--set", values)
    assert REFUSED[values] in str(refused.value)


def test_an_old_kubernetes_is_refused() -> None:
    with pytest.raises(HelmError, match=r"requires kubeVersion: >=1\.29"):
        run("template", "mq", str(CHART), "--kube-version", "1.28.0")
