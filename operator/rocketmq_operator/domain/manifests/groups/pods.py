"""The pod of a replica: the broker and its sidecar, a volume, and a socket between them.

Either may start first. At the end the sidecar stops first: its SIGTERM hands mastership over, and the broker's preStop
delays the broker's SIGTERM until then.
"""

from collections.abc import Mapping
from typing import Final

from rocketmq_operator.domain.manifests import pods
from rocketmq_operator.domain.manifests.groups.jvm import java_options
from rocketmq_operator.domain.manifests.objects import Images, Owner
from rocketmq_resources import names
from rocketmq_resources.broker_group import BrokerGroup
from rocketmq_resources.decoding import Json
from rocketmq_resources.schema.broker_group_parts import Jvm

BROKER_REQUESTS: Final = {"cpu": "100m", "memory": "256Mi"}
APACHE_REQUESTS: Final = {"cpu": "250m", "memory": "2Gi"}
SIDECAR_REQUESTS: Final = {"cpu": "50m", "memory": "128Mi"}
"""Requests unless the resource sets them."""

RECOVERY_SECONDS: Final = 1800
"""How long a broker may recover its store before it listens."""
PRE_STOP_SECONDS: Final = 10
"""How long the broker waits for its sidecar to end."""

_CONFIG_FILE: Final = "$(POD_NAME).conf"
_RUN: Final = "run"
_TLS: Final = "grpc-tls"
_REPLICATION_SECRET: Final = "replication-secret"  # noqa: S105 - a volume's name
_APACHE_COMMAND: Final = "/opt/rocketmq/run-broker.sh"
_WAIT_FOR_SIDECAR: Final = (
    f"for i in $(seq {PRE_STOP_SECONDS * 10}); do"
    f" (exec 3<>/dev/tcp/127.0.0.1/{names.PORT_SIDECAR_METRICS}) 2>/dev/null || exit 0; sleep 0.1; done"
)
"""An official image has no command of ours: the sidecar's metrics port closes last."""


def broker_pod(owner: Owner, group: BrokerGroup, images: Images, config_hash: str, *, secret_required: bool) -> Json:
    """The pod template of the group's StatefulSet."""
    volumes = [
        pods.config_volume(names.group_config(group.name)),
        pods.empty_dir(pods.TEMPORARY, "256Mi"),
        pods.empty_dir(_RUN, "1Mi", memory=True),
    ]
    annotations = {}
    if group.replication_secret is not None:
        volumes.append(pods.secret_volume(_REPLICATION_SECRET, group.replication_secret))
        annotations[names.ANNOTATION_REPLICATION_SECRET] = group.replication_secret
    if group.spec.grpc_tls_secret_name is not None:
        volumes.append(pods.secret_volume(_TLS, group.spec.grpc_tls_secret_name))
        annotations[names.ANNOTATION_GRPC_TLS] = group.spec.grpc_tls_secret_name
    containers = [_broker(group, images), _sidecar(group, images, secret_required=secret_required)]
    return pods.pod(
        owner, group, images, config_hash=config_hash, containers=containers, volumes=volumes, annotations=annotations
    )


def _broker(group: BrokerGroup, images: Images) -> Json:
    """The startup probe allows for the recovery of a large store. Afterwards the liveness probe asks the sidecar, which
    polls the broker all the time and detects a hang better than a probe."""
    spec, apache = group.spec, group.spec.engine == "apache"
    own = _environment(group)
    ports = {"broker": names.PORT_BROKER, "vip": names.PORT_BROKER_VIP}
    command: dict[str, object] = {}
    pre_stop = ["rocketmq-broker", "--pre-stop", names.PATH_SOCKET]
    if apache:
        jvm = spec.jvm or Jvm()
        own = {
            "JAVA_OPT_EXT": java_options(
                memory=group.broker_memory, heap=jvm.heap, direct_memory=jvm.direct_memory, options=jvm.options
            )
        }
        ports["ha"] = names.PORT_HA
        command["command"] = [_APACHE_COMMAND]
        pre_stop = ["bash", "-c", _WAIT_FOR_SIDECAR]
    return pods.container(
        spec,
        names.CONTAINER_BROKER,
        spec.image.broker or (images.apache if apache else images.of("broker")),
        config=_CONFIG_FILE,
        environment=own,
        resources=pods.resources(spec.resources.broker, APACHE_REQUESTS if apache else BROKER_REQUESTS),
        ports=ports,
        mounts=_mounts(group),
        startupProbe=pods.tcp_probe("broker", period=1, failures=RECOVERY_SECONDS),
        livenessProbe=pods.http_probe("/livez/broker", names.PORT_SIDECAR_METRICS, period=5, failures=6),
        readinessProbe=pods.tcp_probe("broker", period=5, failures=2),
        lifecycle={"preStop": {"exec": {"command": pre_stop}}},
        **command,
    )


def _sidecar(group: BrokerGroup, images: Images, *, secret_required: bool) -> Json:
    """Live while its event loop runs, independent of the broker; ready while the replica is usable."""
    spec, mounts = group.spec, _mounts(group)
    environment = _environment(group)
    if group.replication_secret is not None:
        # Not in the ConfigMap: a pod that was made without the file must not look for it when its container restarts.
        environment = {
            **environment,
            "ROCKETMQ_HAREPLICATIONSECRETFILE": f"{names.PATH_REPLICATION_SECRET}/{names.KEY_REPLICATION_SECRET}",
            "ROCKETMQ_HAREPLICATIONSECRETREQUIRED": "true" if secret_required else "false",
        }
        mounts.append(pods.mount(_REPLICATION_SECRET, names.PATH_REPLICATION_SECRET, read_only=True))
    if spec.grpc_tls_secret_name is not None:
        environment = {
            **environment,
            "ROCKETMQ_SIDECARGRPCTLSCERTFILE": f"{names.PATH_GRPC_TLS}/tls.crt",
            "ROCKETMQ_SIDECARGRPCTLSKEYFILE": f"{names.PATH_GRPC_TLS}/tls.key",
            "ROCKETMQ_SIDECARGRPCTLSCAFILE": f"{names.PATH_GRPC_TLS}/ca.crt",
        }
        mounts.append(pods.mount(_TLS, names.PATH_GRPC_TLS, read_only=True))
    ports = {"grpc": names.PORT_SIDECAR_GRPC, "metrics": names.PORT_SIDECAR_METRICS}
    if spec.engine == "native":
        ports = {"ha": names.PORT_HA, **ports}
    return pods.container(
        spec,
        names.CONTAINER_SIDECAR,
        spec.image.sidecar or images.of("sidecar"),
        config=_CONFIG_FILE,
        environment=environment,
        resources=pods.resources(spec.resources.sidecar, SIDECAR_REQUESTS),
        ports=ports,
        mounts=mounts,
        **pods.own_probes(start_seconds=60),
    )


def _environment(group: BrokerGroup) -> Mapping[str, str]:
    """Replicas announce their pod's address, of the family that the Service has first."""
    if not group.spec.service.ip_families:
        return {"ROCKETMQ_BROKERIP1": "$(POD_IP)", "ROCKETMQ_LOGFORMAT": "json"}
    return {
        "ROCKETMQ_BROKERIP1": "$(POD_IPS)",
        "ROCKETMQ_BROKERIPFAMILY": "$(POD_IP_FAMILY)",
        "ROCKETMQ_LOGFORMAT": "json",
    }


def _mounts(group: BrokerGroup) -> list[Json]:
    """The same in both containers: they use the same files."""
    mounts = [
        *pods.common_mounts(),
        pods.mount(_RUN, names.PATH_RUN),
        pods.mount(names.VOLUME_DATA, names.PATH_DATA),
    ]
    if group.spec.storage.commit_log is not None:
        mounts.append(pods.mount(names.VOLUME_COMMIT_LOG, names.PATH_COMMIT_LOG_VOLUME))
    return mounts
