"""The objects of a ControllerCluster: StatefulSet, headless Service, ConfigMap, Raft secret, disruption budget,
network policy."""

import base64
from collections.abc import Mapping
from typing import Final

from rocketmq_operator.domain.manifests import pods, volumes
from rocketmq_operator.domain.manifests.disruption import disruption_budget
from rocketmq_operator.domain.manifests.network_policies import Access, controller_policy
from rocketmq_operator.domain.manifests.objects import (
    Images,
    Owner,
    PropertyValue,
    config_hash,
    config_map,
    headless_service,
    properties_text,
)
from rocketmq_operator.domain.manifests.stateful_sets import stateful_set
from rocketmq_resources import names
from rocketmq_resources.acting import NAME_SERVER_DEFAULTS
from rocketmq_resources.controller_cluster import ControllerCluster
from rocketmq_resources.decoding import Json

REQUESTS: Final = {"cpu": "50m", "memory": "128Mi"}
"""Requests unless the resource sets them."""

CONFIG_FILE: Final = "controller.conf"
START_SECONDS: Final = 300
"""Time to read journal and snapshot."""

_RAFT_SECRET: Final = "raft-secret"  # noqa: S105 - a volume's name
_TLS: Final = "grpc-tls"


def controller_cluster_objects(
    cluster: ControllerCluster, images: Images, access: Access | None = None, *, replicas: int | None = None
) -> tuple[Json, ...]:
    """All objects except the Raft secret, in the order to apply them. `replicas`: the pods, if not spec.members."""
    replicas = replicas or cluster.spec.members
    owner, name = _owner(cluster), names.controller(cluster.name)
    text = _config(cluster, replicas)
    embedded = cluster.spec.embedded_in_name_server
    return (
        config_map(owner, name, {CONFIG_FILE: text}),
        headless_service(owner, name, _ports(cluster), cluster.spec.service),
        *controller_policy(owner, name, access or Access(), name_server=embedded),
        *disruption_budget(owner, name, replicas=replicas, needed=replicas // 2 + 1),
        stateful_set(
            owner,
            name,
            replicas=replicas,
            pod=_pod(owner, cluster, images, text),
            claims=volumes.controller_claims(owner, cluster.spec.storage),
            claim_retention=volumes.retention(cluster.spec.storage.reclaim_policy),
            rolled_by_operator=True,
        ),
    )


def raft_secret(cluster: ControllerCluster, secret_text: str) -> Json:
    """The Secret that all members share, at least 16 bytes. It is created once and never changed, since members with
    different secrets refuse each other."""
    data = {names.KEY_RAFT_SECRET: base64.b64encode(secret_text.encode()).decode()}
    return _owner(cluster).new_object("v1", "Secret", names.raft_secret(cluster.name), type="Opaque", data=data)


def _owner(cluster: ControllerCluster) -> Owner:
    return Owner("ControllerCluster", "controller", cluster.metadata)


def _ports(cluster: ControllerCluster) -> Mapping[str, int]:
    ports = {
        "remoting": names.PORT_CONTROLLER,
        "raft": names.PORT_CONTROLLER_RAFT,
        "grpc": names.PORT_CONTROLLER_GRPC,
        "metrics": names.PORT_CONTROLLER_METRICS,
    }
    if cluster.spec.embedded_in_name_server:
        ports["namesrv"] = names.PORT_NAMESRV
    return ports


def _config(cluster: ControllerCluster, replicas: int) -> str:
    """The same file for all members: the environment contains the id of the member."""
    spec, tuning = cluster.spec, cluster.spec.tuning
    ours: dict[str, PropertyValue] = {
        "controllerDLegerGroup": cluster.name,
        "controllerDLegerPeers": cluster.peers(replicas),
        "controllerStorePath": f"{names.PATH_DATA}/controller",
        "controllerRaftSecretFile": f"{names.PATH_RAFT_SECRET}/{names.KEY_RAFT_SECRET}",
        "controllerRaftPort": names.PORT_CONTROLLER_RAFT,
        "controllerGrpcPort": names.PORT_CONTROLLER_GRPC,
        "metricsPromExporterPort": names.PORT_CONTROLLER_METRICS,
        "raftHeartbeatIntervalMs": tuning.raft_heartbeat_interval_ms,
        "raftElectionTimeoutMs": tuning.raft_election_timeout_ms,
        "brokerSuspectTimeoutMs": tuning.broker_suspect_timeout_ms,
        "scanInactiveMasterInterval": tuning.scan_inactive_master_interval_ms,
        "enableElectUncleanMaster": tuning.enable_elect_unclean_master,
    }
    if spec.grpc_tls_secret_name:
        ours["controllerGrpcTlsCertFile"] = f"{names.PATH_GRPC_TLS}/tls.crt"
        ours["controllerGrpcTlsKeyFile"] = f"{names.PATH_GRPC_TLS}/tls.key"
        ours["controllerGrpcTlsCaFile"] = f"{names.PATH_GRPC_TLS}/ca.crt"
    if spec.embedded_in_name_server:
        ours["enableControllerInNamesrv"] = True
        ours["listenPort"] = names.PORT_NAMESRV
        ours["kvConfigPath"] = f"{names.PATH_DATA}/namesrv/kvConfig.json"
        ours["configStorePath"] = f"{names.PATH_DATA}/namesrv/namesrv.properties"
    return properties_text(NAME_SERVER_DEFAULTS if spec.embedded_in_name_server else {}, spec.config, ours)


def _pod(owner: Owner, cluster: ControllerCluster, images: Images, config: str) -> Json:
    spec = cluster.spec
    process = "namesrv" if spec.embedded_in_name_server else "controller"
    mounts = [
        *pods.common_mounts(),
        pods.mount(names.VOLUME_DATA, names.PATH_DATA),
        pods.mount(_RAFT_SECRET, names.PATH_RAFT_SECRET, read_only=True),
    ]
    pod_volumes = [
        pods.config_volume(names.controller(cluster.name)),
        pods.empty_dir(pods.TEMPORARY, "64Mi"),
        pods.secret_volume(_RAFT_SECRET, cluster.raft_secret),
    ]
    if spec.grpc_tls_secret_name:
        mounts.append(pods.mount(_TLS, names.PATH_GRPC_TLS, read_only=True))
        pod_volumes.append(pods.secret_volume(_TLS, spec.grpc_tls_secret_name))
    container = pods.container(
        spec,
        names.CONTAINER_CONTROLLER,
        spec.image.controller or images.of(process),
        config=CONFIG_FILE,
        environment={"ROCKETMQ_CONTROLLERDLEGERSELFID": "n$(POD_INDEX)", "ROCKETMQ_LOGFORMAT": "json"},
        resources=pods.resources(spec.resources, REQUESTS),
        ports=_ports(cluster),
        mounts=mounts,
        **pods.own_probes(start_seconds=START_SECONDS),
    )
    return pods.pod(
        owner, cluster, images, config_hash=config_hash([config]), containers=[container], volumes=pod_volumes
    )
