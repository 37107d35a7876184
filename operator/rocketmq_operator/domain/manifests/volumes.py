"""The volumes that outlive pods: claim templates of the StatefulSets, and the retention of the claims."""

from rocketmq_operator.domain.manifests.objects import Owner
from rocketmq_resources import names
from rocketmq_resources.decoding import Json
from rocketmq_resources.schema.broker_group_parts import BrokerStorage
from rocketmq_resources.schema.common import ReclaimPolicy
from rocketmq_resources.schema.controller_cluster import ControllerStorage


def broker_claims(owner: Owner, storage: BrokerStorage) -> list[Json]:
    """`volumeClaimTemplates` of a broker group. Sizes are those of the spec: Kubernetes refuses to change them in a
    StatefulSet. So to grow a group, `storage` enlarges the claims and deletes the StatefulSet without its pods, then
    this one is applied."""
    claims = [_claim(owner, names.VOLUME_DATA, storage.size, storage.storage_class_name)]
    if storage.commit_log is not None:
        second = storage.commit_log
        claims.append(_claim(owner, names.VOLUME_COMMIT_LOG, second.size, second.storage_class_name))
    return claims


def controller_claims(owner: Owner, storage: ControllerStorage) -> list[Json]:
    """`volumeClaimTemplates` of a controller cluster."""
    return [_claim(owner, names.VOLUME_DATA, storage.size, storage.storage_class_name)]


def retention(policy: ReclaimPolicy) -> Json:
    """`persistentVolumeClaimRetentionPolicy`: claims are deleted with the resource if its policy says so. Never when
    scaling down: a hibernated group has no pods and needs every claim, and the controllers forget a scaled-down
    replica before the operator deletes its claims."""
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
