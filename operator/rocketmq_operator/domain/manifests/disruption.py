"""How many pods a drain may evict at a time."""

from rocketmq_operator.domain.manifests.objects import Owner
from rocketmq_resources.decoding import Json


def disruption_budget(owner: Owner, name: str, *, replicas: int, needed: int) -> tuple[Json, ...]:
    """The PodDisruptionBudget of `replicas` pods of which `needed` must run.

    One pod at a time, so that each is back in sync before the next. None if all are needed: an eviction then waits
    until a user scales up or deletes the pod. A single pod has no budget, because its node could never be drained. A
    pod that is not ready can always be evicted, since it serves nothing.
    """
    if replicas <= 1:
        return ()
    return (
        owner.new_object(
            "policy/v1",
            "PodDisruptionBudget",
            name,
            spec={
                "maxUnavailable": min(1, max(0, replicas - needed)),
                "selector": {"matchLabels": owner.selector},
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            },
        ),
    )
