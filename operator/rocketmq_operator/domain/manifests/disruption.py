"""How many pods a drain may take away at a time."""

from rocketmq_operator.domain.manifests.objects import Owner
from rocketmq_operator.domain.spec.common import Json


def disruption_budget(owner: Owner, name: str, *, replicas: int, needed: int) -> tuple[Json, ...]:
    """The PodDisruptionBudget of `replicas` pods of which `needed` must run.

    One at a time, so that each is back in sync before the next; none where all are needed: an eviction then waits until
    somebody scales up or deletes the pod by hand. A single pod has no budget, because its node could never be drained.
    A pod that is not ready may always go: it does nothing that its eviction would end.
    """
    if replicas <= 1:
        return ()
    return (
        owner.made(
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
