"""Whether the replicas are different ones of one group, by the identities that they describe. Called by `job`, before
anything is compared: a log always agrees with itself, and logs of two groups differ in everything."""

from collections.abc import Iterable

from rocketmq_verify.domain.model import ReplicaLog


class StrangersError(Exception):
    """Two replicas have one identity, or are of two groups; the text names both."""


def check_identities(logs: Iterable[ReplicaLog]) -> None:
    """Unknown identities pass.

    Raises:
        StrangersError: see there.
    """
    known: list[ReplicaLog] = []
    for log in logs:
        for other in known:
            if log.group and other.group and log.group != other.group:
                raise StrangersError(
                    f"{other.name} is of the group {other.group}, {log.name} of {log.group} (clusterName/brokerName): "
                    "verify only replicas of one group"
                )
            if log.broker_id is not None and log.broker_id == other.broker_id:
                raise StrangersError(
                    f"{other.name} and {log.name} have the same brokerId, {log.broker_id}: the same store, or a copy "
                    "of it; a log always agrees with itself"
                )
        known.append(log)
