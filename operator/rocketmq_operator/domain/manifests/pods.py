"""What all pods have in common: users and rights, probes, environment, where they run, small volumes.

Every container here is admitted by a namespace that enforces the restricted Pod Security Standard.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from rocketmq_operator.domain.manifests.objects import Images, Owner
from rocketmq_resources import names
from rocketmq_resources.common import Resource
from rocketmq_resources.decoding import Json
from rocketmq_resources.schema.common import Scheduling, Services, Spec

GRACE_SECONDS: Final = 30
"""Between SIGTERM and SIGKILL. A hand-over takes a second or two, a broker that has accepted sends waits shutdownWaitMs
for their copies, and a Java broker takes some seconds to flush and close."""

DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
"""Annotation: the container whose logs `kubectl logs` shows."""
TEMPORARY: Final = "tmp"
CONFIG: Final = "config"


def pod(
    owner: Owner,
    resource: Resource[Spec],
    images: Images,
    *,
    config_hash: str,
    containers: Sequence[Json],
    volumes: Sequence[Json],
    annotations: Mapping[str, str] | None = None,
) -> Json:
    """The pod template of a StatefulSet: metadata and spec. The first container is the main one. A changed
    `config_hash` makes a new revision. Our pods do not call the API server, so they have no token."""
    template, pull_secrets = resource.spec.pod_template, resource.spec.image.pull_secrets
    spec: dict[str, object] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": pod_security(images),
        "containers": list(containers),
        "volumes": list(volumes),
        **_placement(owner, resource.spec.scheduling),
    }
    if pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in pull_secrets]
    if template.service_account_name:
        spec["serviceAccountName"] = template.service_account_name
    ours = {
        names.ANNOTATION_CONFIG_HASH: config_hash,
        names.ANNOTATION_RESTARTED_AT: resource.restarted_at,
        names.ANNOTATION_IP_FAMILY: next(iter(resource.spec.service.ip_families), None),
        **(annotations or {}),
        DEFAULT_CONTAINER: str(containers[0]["name"]),
    }
    return {"metadata": owner.pod_metadata(template, ours), "spec": spec}


def container(
    spec: Spec,
    name: str,
    image: str,
    *,
    config: str,
    environment: Mapping[str, str],
    resources: Json,
    ports: Mapping[str, int],
    mounts: Sequence[Json],
    **more: object,
) -> Json:
    """One container that reads the file `config` of the volume CONFIG; `more` are its probes, command and lifecycle."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": spec.image.pull_policy,
        "args": ["-c", f"{names.PATH_CONFIG}/{config}"],
        "env": _environment(spec, environment),
        "ports": [{"name": port, "containerPort": number, "protocol": "TCP"} for port, number in ports.items()],
        "resources": resources,
        "securityContext": container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": list(mounts),
        **more,
    }


def resources(wanted: Json, defaults: Mapping[str, str]) -> Json:
    """`resources` of a container: as in the spec, with a request from `defaults` for each resource without request and
    limit. There are no default limits: one on memory kills, one on CPU delays heartbeats."""
    limits, requests = _amounts(wanted, "limits"), _amounts(wanted, "requests")
    for resource, amount in defaults.items():
        if resource not in limits:
            requests.setdefault(resource, amount)
    return {**wanted, "requests": requests} if requests else wanted


def http_probe(path: str, port: str | int, *, period: int, failures: int, timeout: int = 2) -> Json:
    """A probe by GET, times in seconds. The port of another container of the pod is given by number."""
    return {"httpGet": {"path": path, "port": port, "scheme": "HTTP"}, **_probe_timing(period, failures, timeout)}


def tcp_probe(port: str, *, period: int, failures: int, timeout: int = 2) -> Json:
    """A probe that connects to the port, times in seconds."""
    return {"tcpSocket": {"port": port}, **_probe_timing(period, failures, timeout)}


def own_probes(*, start_seconds: int) -> Mapping[str, Json]:
    """Probes of one of our processes at its port `metrics`: `start_seconds` to start, live while its event loop runs,
    ready as the process reports."""
    return {
        "startupProbe": http_probe("/healthz", "metrics", period=1, failures=start_seconds),
        "livenessProbe": http_probe("/healthz", "metrics", period=5, failures=6),
        "readinessProbe": http_probe("/readyz", "metrics", period=2, failures=2),
    }


def empty_dir(name: str, size: str, *, memory: bool = False) -> Json:
    """A volume that lives as long as the pod."""
    source: dict[str, object] = {"sizeLimit": size}
    if memory:
        source["medium"] = "Memory"
    return {"name": name, "emptyDir": source}


def config_volume(config_map: str) -> Json:
    """The volume CONFIG, all files of the ConfigMap."""
    return {"name": CONFIG, "configMap": {"name": config_map, "defaultMode": 0o444}}


def secret_volume(name: str, secret: str) -> Json:
    """Readable only for the group: the kubelet writes the files as root, and fsGroup gives them our group."""
    return {"name": name, "secret": {"secretName": secret, "defaultMode": 0o440}}


def mount(name: str, path: str, *, read_only: bool = False) -> Json:
    return {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}


def common_mounts() -> list[Json]:
    """Mounts of the volumes CONFIG and TEMPORARY."""
    return [mount(CONFIG, names.PATH_CONFIG, read_only=True), mount(TEMPORARY, "/tmp")]  # noqa: S108 - its own volume


def _environment(spec: Spec, own: Mapping[str, str]) -> list[Json]:
    """`env` of a container: the pod's identity first, since other values refer to it, then the user's, then ours, which
    replace the user's of the same name."""
    identity: list[Json] = [
        field_variable("POD_NAME", "metadata.name"),
        field_variable("POD_IP", "status.podIP"),
        field_variable("POD_INDEX", f"metadata.labels['{names.LABEL_POD_INDEX}']"),
    ]
    if spec.service != Services():
        identity.append(field_variable("POD_IPS", "status.podIPs"))
    if spec.service.ip_families:
        identity.append({"name": "POD_IP_FAMILY", "value": spec.service.ip_families[0]})
    taken = {entry["name"] for entry in identity} | own.keys()
    users = [entry for entry in spec.pod_template.env if entry.get("name") not in taken]
    return [*identity, *users, *({"name": name, "value": value} for name, value in own.items())]


def pod_security(images: Images) -> Json:
    """Security context of a pod. Volumes belong to the group; files of a large store are not changed at each start."""
    ids = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), names.USER_ID) if images.fixed_ids else {}
    return {
        "runAsNonRoot": True,
        **ids,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> Json:
    """Security context of a container."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
    }


def _placement(owner: Owner, scheduling: Scheduling) -> Json:
    """The user's affinity with our anti-affinity in it; spread constraints that select nothing select our pods."""
    result: dict[str, object] = {}
    affinity = _with_anti_affinity(owner, scheduling)
    if affinity:
        result["affinity"] = affinity
    if scheduling.topology_spread_constraints:
        result["topologySpreadConstraints"] = [
            {"labelSelector": {"matchLabels": owner.selector}, **constraint}
            for constraint in scheduling.topology_spread_constraints
        ]
    if scheduling.node_selector:
        result["nodeSelector"] = dict(scheduling.node_selector)
    if scheduling.tolerations:
        result["tolerations"] = list(scheduling.tolerations)
    if scheduling.priority_class_name:
        result["priorityClassName"] = scheduling.priority_class_name
    return result


def _with_anti_affinity(owner: Owner, scheduling: Scheduling) -> Json:
    if scheduling.anti_affinity == "none":
        return scheduling.affinity
    term: Json = {"labelSelector": {"matchLabels": owner.selector}, "topologyKey": scheduling.topology_key}
    if scheduling.anti_affinity == "required":
        key, ours = "requiredDuringSchedulingIgnoredDuringExecution", term
    else:
        key, ours = "preferredDuringSchedulingIgnoredDuringExecution", {"weight": 100, "podAffinityTerm": term}
    users = scheduling.affinity.get("podAntiAffinity")
    apart = dict(users) if isinstance(users, Mapping) else {}
    apart[key] = [*(apart.get(key) or ()), ours]
    return {**scheduling.affinity, "podAntiAffinity": apart}


def _amounts(wanted: Json, part: str) -> dict[str, object]:
    amounts = wanted.get(part)
    return dict(amounts) if isinstance(amounts, Mapping) else {}


def helper_scheduling(spec: Spec) -> Json:
    """Scheduling of a helper pod of a resource: on the nodes that its members may use."""
    result: dict[str, object] = {}
    if spec.image.pull_secrets:
        result["imagePullSecrets"] = [{"name": name} for name in spec.image.pull_secrets]
    if spec.scheduling.node_selector:
        result["nodeSelector"] = dict(spec.scheduling.node_selector)
    if spec.scheduling.tolerations:
        result["tolerations"] = list(spec.scheduling.tolerations)
    return result


def field_variable(name: str, path: str) -> Json:
    """An environment variable with a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _probe_timing(period: int, failures: int, timeout: int) -> Json:
    return {"periodSeconds": period, "failureThreshold": failures, "timeoutSeconds": timeout, "successThreshold": 1}
