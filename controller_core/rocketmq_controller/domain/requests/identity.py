"""Whether a request means the group that the controllers know: they find groups by brokerName alone, as Java's do, and
two clusters can have the same brokerName.

Every request that names a cluster is compared here, before it decides or records anything. Differs from 5.3.3, which
compares none.
"""

from rocketmq_controller.domain.model import BrokerGroup


def foreign_cluster(group: BrokerGroup | None, cluster_name: str) -> str | None:
    """Why a broker of this cluster is not of this group; None if it may be. A group without replicas, new or cleaned,
    belongs to the cluster that comes first."""
    if group is None or not group.replicas or group.cluster_name == cluster_name:
        return None
    return (
        f"brokerName {group.broker_name} is a group of cluster {group.cluster_name} here, not of {cluster_name}:"
        " correct brokerClusterName or brokerName"
    )


def named_foreign_cluster(group: BrokerGroup | None, cluster_name: str | None) -> str | None:
    """The same, for requests that need not name a cluster (1002, 1011)."""
    return foreign_cluster(group, cluster_name) if cluster_name else None
