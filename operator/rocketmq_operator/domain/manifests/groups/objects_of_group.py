"""The objects of a BrokerGroup: StatefulSet, headless Service, ConfigMap with a file for each replica, disruption
budget, network policy, and the verification. The pods are in `pods`, the files in `config_file`."""

import base64

import msgspec

from rocketmq_operator.domain.manifests import volumes
from rocketmq_operator.domain.manifests.disruption import disruption_budget
from rocketmq_operator.domain.manifests.groups.config_file import Endpoints, broker_config, config_base
from rocketmq_operator.domain.manifests.groups.pods import broker_pod
from rocketmq_operator.domain.manifests.network_policies import Access, broker_policy
from rocketmq_operator.domain.manifests.objects import Images, Owner, config_hash, config_map, headless_service
from rocketmq_operator.domain.manifests.stateful_sets import stateful_set
from rocketmq_operator.domain.manifests.verification.cron_jobs import verification_objects
from rocketmq_resources import names
from rocketmq_resources.broker_group import BrokerGroup
from rocketmq_resources.decoding import Json

PORTS = {
    "broker": names.PORT_BROKER,
    "vip": names.PORT_BROKER_VIP,
    "ha": names.PORT_HA,
    "grpc": names.PORT_SIDECAR_GRPC,
    "metrics": names.PORT_SIDECAR_METRICS,
}


def replication_secret(group: BrokerGroup, secret_text: str) -> Json:
    """The Secret that all replicas share, at least 16 bytes. It is created once and never changed."""
    owner = Owner("BrokerGroup", "broker", group.metadata)
    data = {names.KEY_REPLICATION_SECRET: base64.b64encode(secret_text.encode()).decode()}
    return owner.new_object("v1", "Secret", names.replication_secret(group.name), type="Opaque", data=data)


def broker_group_objects(
    group: BrokerGroup,
    endpoints: Endpoints,
    images: Images,
    replicas: int,
    access: Access | None = None,
    *,
    secret_required: bool = True,
) -> tuple[Json, ...]:
    """All objects in the order to apply them: the files exist before a pod reads its own.

    `replicas`: spec.replicas of the StatefulSet for now. It differs from the spec while replicas are removed one by
    one, and is 0 for a hibernated group. `secret_required`: replicas accept only peers that prove to know the secret.
    """
    owner, name = Owner("BrokerGroup", "broker", group.metadata), group.name
    count = max(replicas, group.spec.replicas)
    files = {
        names.replica_config_key(name, ordinal): broker_config(group, endpoints, ordinal) for ordinal in range(count)
    }
    # A hash of what the files are made from, not of the files: a new replica's file must not restart the others.
    revision = config_hash([config_base(group, endpoints), msgspec.json.encode(group.spec.priorities).decode()])
    return (
        config_map(owner, names.group_config(name), files),
        headless_service(owner, name, PORTS, group.spec.service),
        *broker_policy(owner, name, access or Access(), verified=group.spec.verification is not None),
        *disruption_budget(owner, name, replicas=group.spec.replicas, needed=group.min_in_sync_replicas),
        stateful_set(
            owner,
            name,
            replicas=replicas,
            pod=broker_pod(owner, group, images, revision, secret_required=secret_required),
            claims=volumes.broker_claims(owner, group.spec.storage),
            claim_retention=volumes.retention(group.spec.storage.reclaim_policy),
            rolled_by_operator=True,
        ),
        *verification_objects(group, images, replicas, access or Access()),
    )
