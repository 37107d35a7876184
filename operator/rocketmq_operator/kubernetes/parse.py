"""Parses objects into what the cache keeps: pods, claims, CronJobs and StatefulSets as the plan's values, our own
resources as a whole, and only a digest of anything else. Used by `cache`.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from rocketmq_formats.addresses import of_family
from rocketmq_operator.domain.conditions import timestamp
from rocketmq_operator.domain.observed import Claim, CronJob, Pod, StatefulSet
from rocketmq_resources import names
from rocketmq_resources.decoding import Json
from rocketmq_resources.quantity import QuantityError, parse_quantity

Value = Pod | Claim | StatefulSet | CronJob | Json | None

_MAIN: Final = (names.CONTAINER_BROKER, names.CONTAINER_CONTROLLER, names.CONTAINER_NAMESRV)
_HARMLESS: Final = frozenset({"ContainerCreating", "PodInitializing"})
_CONFIG_ERROR: Final = "CreateContainerConfigError"
"""A Secret, ConfigMap or key of spec.podTemplate.env is missing: the message says which. That of other reasons changes
all the time."""
_BOOKKEEPING: Final = (
    "managedFields",
    "resourceVersion",
    "generation",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_LABEL_REVISION: Final = "controller-revision-hash"
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


def essence(body: Json) -> bytes:
    """Digest of everything that a client can change: all except the status and the server's bookkeeping in metadata."""
    rest = {key: value for key, value in body.items() if key not in ("metadata", "status")}
    metadata = _mapping(body, "metadata")
    rest["metadata"] = {key: value for key, value in metadata.items() if key not in _BOOKKEEPING}
    return hashlib.blake2b(_ENCODER.encode(rest), digest_size=16).digest()


def digest(made: Json) -> bytes:
    """Digest of a desired object."""
    return hashlib.blake2b(_ENCODER.encode(made), digest_size=16).digest()


def value_of(kind: str, body: Json) -> Value:
    """What the cache keeps of the object."""
    match kind:
        case "Pod":
            return pod_of(body)
        case "PersistentVolumeClaim":
            return claim_of(body)
        case "StatefulSet":
            return stateful_set_of(body)
        case "CronJob":
            return CronJob(created=timestamp(_mapping(body, "metadata").get("creationTimestamp")))
        case _ if kind in names.PLURALS:
            metadata = {key: value for key, value in _mapping(body, "metadata").items() if key != "managedFields"}
            return {**body, "metadata": metadata}
        case _:
            return None


def pod_of(body: Json) -> Pod | None:
    """None if it is not a pod of a StatefulSet."""
    metadata, spec, status = _mapping(body, "metadata"), _mapping(body, "spec"), _mapping(body, "status")
    name = str(metadata.get("name", ""))
    try:
        ordinal = names.ordinal_of(name)
    except ValueError:
        return None
    labels = {str(key): str(value) for key, value in _mapping(metadata, "labels").items()}
    annotations = _mapping(metadata, "annotations")
    conditions = {str(condition.get("type")): condition for condition in _list(status, "conditions")}
    containers = _list(status, "containerStatuses")
    return Pod(
        name=name,
        ordinal=ordinal,
        uid=str(metadata.get("uid", "")),
        ip=_address(status, annotations),
        node=str(spec.get("nodeName") or ""),
        revision=labels.get(_LABEL_REVISION, ""),
        labels=labels,
        ready=conditions.get("Ready", {}).get("status") == "True",
        running=any(c.get("name") in _MAIN and "running" in _mapping(c, "state") for c in containers),
        deleting=metadata.get("deletionTimestamp") is not None,
        ends=timestamp(metadata.get("deletionTimestamp")),
        scheduled=bool(spec.get("nodeName")),
        created=timestamp(metadata.get("creationTimestamp")),
        replication_secret=str(annotations.get(names.ANNOTATION_REPLICATION_SECRET, "")),
        grpc_tls=names.ANNOTATION_GRPC_TLS in annotations,
        problem=_problem(conditions, [*_list(status, "initContainerStatuses"), *containers]),
    )


def _address(status: Json, annotations: Json) -> str:
    """Of the family that the pod was made for, where it has one; else its first."""
    family = str(annotations.get(names.ANNOTATION_IP_FAMILY, ""))
    addresses = ",".join(str(entry.get("ip") or "") for entry in _list(status, "podIPs"))
    return of_family(addresses, family) or str(status.get("podIP") or "")


def _problem(conditions: Mapping[str, Json], containers: list[Json]) -> str:
    """`containers`: the states of all, of those too that a webhook has added."""
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return f"{scheduled.get('reason', 'Unschedulable')}: {scheduled.get('message', '')}"[:300]
    for container in containers:
        waiting = _mapping(_mapping(container, "state"), "waiting")
        reason = waiting.get("reason")
        if reason == _CONFIG_ERROR:
            return f"{reason} ({container.get('name')}): {waiting.get('message', '')}"[:300]
        if isinstance(reason, str) and reason not in _HARMLESS:
            return f"{reason} ({container.get('name')})"
    return ""


def claim_of(body: Json) -> Claim | None:
    """None if it is not a claim of one of our StatefulSets."""
    metadata = _mapping(body, "metadata")
    name = str(metadata.get("name", ""))
    volume, _, pod = name.partition("-")
    try:
        ordinal = names.ordinal_of(pod)
    except ValueError:
        return None
    annotations = _mapping(metadata, "annotations")
    written = annotations.get(names.ANNOTATION_BROKER_ID)
    return Claim(
        name=name,
        volume=volume,
        ordinal=ordinal,
        uid=str(metadata.get("uid", "")),
        requested=_size(body),
        broker_id=int(written) if isinstance(written, str) and written.isdecimal() else None,
        retired=names.ANNOTATION_RETIRED in annotations,
        deleting=metadata.get("deletionTimestamp") is not None,
    )


def stateful_set_of(body: Json) -> StatefulSet:
    """The StatefulSet of one of our resources."""
    metadata, spec, status = _mapping(body, "metadata"), _mapping(body, "spec"), _mapping(body, "status")
    templates = tuple(_list(spec, "volumeClaimTemplates"))
    generation, seen = metadata.get("generation"), status.get("observedGeneration")
    replicas = spec.get("replicas")
    containers = _list(_mapping(_mapping(spec, "template"), "spec"), "containers")
    return StatefulSet(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        replicas=replicas if isinstance(replicas, int) else 1,
        update_revision=str(status.get("updateRevision") or ""),
        settled=isinstance(generation, int) and isinstance(seen, int) and seen >= generation,
        deleting=metadata.get("deletionTimestamp") is not None,
        image=next((str(c.get("image", "")) for c in containers if c.get("name") in _MAIN), ""),
        claim_sizes={str(_mapping(claim, "metadata").get("name", "")): _size(claim) for claim in templates},
        claim_templates=templates,
        created=timestamp(metadata.get("creationTimestamp")),
    )


def _size(claim: Json) -> int:
    requests = _mapping(_mapping(_mapping(claim, "spec"), "resources"), "requests")
    try:
        return parse_quantity(requests.get("storage"))
    except QuantityError:
        return 0


def _mapping(body: Json, key: str) -> Mapping[str, object]:
    value = body.get(key)
    return value if isinstance(value, Mapping) else {}


def _list(body: Json, key: str) -> list[Json]:
    value = body.get(key)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []
