"""The volumes that outlive pods: claim templates of the StatefulSets, and what becomes of the claims."""

from rocketmq_operator.domain import names
from rocketmq_operator.domain.manifests.objects import Owner
from rocketmq_operator.domain.spec.broker_group import BrokerStorage
from rocketmq_operator.domain.spec.common import Json, ReclaimPolicy
from rocketmq_operator.domain.spec.controller_cluster import ControllerStorage


def broker_claims(owner: Owner, storage: BrokerStorage) -> list[Json]:
    """`volumeClaimTemplates` of a broker group. Sizes are those of the spec: Kubernetes refuses to change them in a
    StatefulSet, so whoever grows a group enlarges the claims, deletes the StatefulSet with its pods left alone, and
    applies this one."""
    claims = [_claim(owner, names.VOLUME_DATA, storage.size, storage.storage_class_name)]
    if storage.commit_log is not None:
        second = storage.commit_log
        claims.append(_claim(owner, names.VOLUME_COMMIT_LOG, second.size, second.storage_class_name))
    return claims


def controller_claims(owner: Owner, storage: ControllerStorage) -> list[Json]:
    """`volumeClaimTemplates` of a controller cluster."""
    return [_claim(owner, names.VOLUME_DATA, storage.size, storage.storage_class_name)]


def retention(policy: ReclaimPolicy) -> Json:
    """`persistentVolumeClaimRetentionPolicy`: claims go with the resource if it says so. Never with a smaller number of
    pods: a hibernated group has none and needs every claim, and a replica that was scaled away is forgotten by the
    controllers before the operator deletes its claims."""
    return {"whenDeleted": policy, "whenScaled": "Retain"}


def _claim(owner: Owner, name: str, size: str, storage_class: str | None) -> Json:
    spec: dict[str, object] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
        "volumeMode": "Filesystem",
    }
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": owner.labels},
        "spec": spec,
    }
