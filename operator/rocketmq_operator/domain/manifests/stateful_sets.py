"""StatefulSets: pods with lasting names and volumes."""

from collections.abc import Sequence

from rocketmq_operator.domain.manifests.objects import Owner
from rocketmq_resources.decoding import Json


def stateful_set(
    owner: Owner,
    name: str,
    *,
    replicas: int,
    pod: Json,
    claims: Sequence[Json] = (),
    claim_retention: Json | None = None,
    rolled_by_operator: bool,
) -> Json:
    """The StatefulSet `name` behind the headless Service of the same name.

    Its pods start at once and in any order: they find each other themselves, and none waits for another to be ready.
    Where the operator rolls, Kubernetes never deletes a pod because the template changed: only the operator knows who
    is master and whether the last one is back in sync.
    """
    spec: dict[str, object] = {
        "replicas": replicas,
        "serviceName": name,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete" if rolled_by_operator else "RollingUpdate"},
        "revisionHistoryLimit": 3,
        "selector": {"matchLabels": owner.selector},
        "template": pod,
    }
    if claims:
        spec["volumeClaimTemplates"] = list(claims)
    if claim_retention is not None:
        spec["persistentVolumeClaimRetentionPolicy"] = claim_retention
    return owner.new_object("apps/v1", "StatefulSet", name, spec=spec)
