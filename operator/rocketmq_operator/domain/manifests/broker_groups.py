"""What a BrokerGroup is made of: StatefulSet, headless Service, ConfigMap with a file for each replica, disruption
budget, network policy, and the verification. The pods are in `broker_pods`, the files in `broker_config`."""

import msgspec

from rocketmq_operator.domain import names
from rocketmq_operator.domain.manifests import volumes
from rocketmq_operator.domain.manifests.broker_config import Endpoints, broker_config, config_base
from rocketmq_operator.domain.manifests.broker_pods import broker_pod
from rocketmq_operator.domain.manifests.disruption import disruption_budget
from rocketmq_operator.domain.manifests.network_policies import Access, broker_policy
from rocketmq_operator.domain.manifests.objects import Images, Owner, config_hash, config_map, headless_service
from rocketmq_operator.domain.manifests.stateful_sets import stateful_set
from rocketmq_operator.domain.manifests.verification import verification_objects
from rocketmq_operator.domain.spec.broker_group import BrokerGroup
from rocketmq_operator.domain.spec.common import Json

PORTS = {
    "broker": names.PORT_BROKER,
    "vip": names.PORT_BROKER_VIP,
    "ha": names.PORT_HA,
    "grpc": names.PORT_SIDECAR_GRPC,
    "metrics": names.PORT_SIDECAR_METRICS,
}


def broker_group_objects(
    group: BrokerGroup,
    endpoints: Endpoints,
    images: Images,
    replicas: int,
    access: Access | None = None,
) -> tuple[Json, ...]:
    """Everything, in the order to apply it: the files are there before a pod looks for its own.

    `replicas` is what the StatefulSet shall have now; it differs from the spec while replicas are taken away one by
    one, and is 0 for a hibernated group.
    """
    owner, name = Owner("BrokerGroup", "broker", group.metadata), group.name
    count = max(replicas, group.spec.replicas)
    files = {
        names.replica_config_key(name, ordinal): broker_config(group, endpoints, ordinal) for ordinal in range(count)
    }
    # of what the files are made of, not of the files: a new replica's file is no reason to restart the others
    revision = config_hash([config_base(group, endpoints), msgspec.json.encode(group.spec.priorities).decode()])
    return (
        config_map(owner, names.group_config(name), files),
        headless_service(owner, name, PORTS),
        *broker_policy(owner, name, access or Access(), verified=group.spec.verification is not None),
        *disruption_budget(owner, name, replicas=group.spec.replicas, needed=group.min_in_sync_replicas),
        stateful_set(
            owner,
            name,
            replicas=replicas,
            pod=broker_pod(owner, group, images, revision),
            claims=volumes.broker_claims(owner, group.spec.storage),
            claim_retention=volumes.retention(group.spec.storage.reclaim_policy),
            rolled_by_operator=True,
        ),
        *verification_objects(group, images, replicas, access or Access()),
    )
