"""The pod of a replica: the broker and its sidecar, a volume, and a socket between them.

Who starts first does not matter. At the end the sidecar goes first: its SIGTERM hands mastership over, and the broker's
preStop holds the broker's SIGTERM back until then.
"""

from collections.abc import Mapping
from typing import Final

from rocketmq_operator.domain import names
from rocketmq_operator.domain.manifests import pods
from rocketmq_operator.domain.manifests.jvm import java_options
from rocketmq_operator.domain.manifests.objects import Images, Owner
from rocketmq_operator.domain.spec.broker_group import BrokerGroup
from rocketmq_operator.domain.spec.common import Json

BROKER_REQUESTS: Final = {"cpu": "100m", "memory": "256Mi"}
APACHE_REQUESTS: Final = {"cpu": "250m", "memory": "2Gi"}
SIDECAR_REQUESTS: Final = {"cpu": "50m", "memory": "128Mi"}
"""Where the resource asks for nothing itself."""

RECOVERY_SECONDS: Final = 1800
"""How long a broker may recover its store before it listens."""
PRE_STOP_SECONDS: Final = 10
"""How long the broker waits for its sidecar's end."""

_CONFIG_FILE: Final = "$(POD_NAME).conf"
_ENVIRONMENT: Final = {"ROCKETMQ_BROKERIP1": "$(POD_IP)", "ROCKETMQ_LOGFORMAT": "json"}
_RUN: Final = "run"
_APACHE_COMMAND: Final = "/opt/rocketmq/run-broker.sh"
_WAIT_FOR_SIDECAR: Final = (
    f"for i in $(seq {PRE_STOP_SECONDS * 10}); do"
    f" (exec 3<>/dev/tcp/127.0.0.1/{names.PORT_SIDECAR_METRICS}) 2>/dev/null || exit 0; sleep 0.1; done"
)
"""An official image has no command of ours: the sidecar's metrics port closes last."""


def broker_pod(owner: Owner, group: BrokerGroup, images: Images, config_hash: str) -> Json:
    """The pod template of the group's StatefulSet."""
    volumes = [
        pods.config_volume(names.group_config(group.name)),
        pods.empty_dir(pods.TEMPORARY, "256Mi"),
        pods.empty_dir(_RUN, "1Mi", memory=True),
    ]
    containers = [_broker(group, images), _sidecar(group, images)]
    return pods.pod(owner, group, config_hash=config_hash, containers=containers, volumes=volumes)


def _broker(group: BrokerGroup, images: Images) -> Json:
    """Its startup probe leaves the recovery of a large store in peace; afterwards the sidecar, which asks it questions
    all the time, knows better than a probe whether it hangs."""
    spec, apache = group.spec, group.spec.engine == "apache"
    own: Mapping[str, str] = _ENVIRONMENT
    ports = {"broker": names.PORT_BROKER, "vip": names.PORT_BROKER_VIP}
    command: dict[str, object] = {}
    pre_stop = ["rocketmq-broker", "--pre-stop", names.PATH_SOCKET]
    if apache:
        jvm = spec.jvm
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


def _sidecar(group: BrokerGroup, images: Images) -> Json:
    """Live while its event loop turns, whatever the broker does; ready while the replica does its part."""
    spec = group.spec
    ports = {"grpc": names.PORT_SIDECAR_GRPC, "metrics": names.PORT_SIDECAR_METRICS}
    if spec.engine == "native":
        ports = {"ha": names.PORT_HA, **ports}
    return pods.container(
        spec,
        names.CONTAINER_SIDECAR,
        spec.image.sidecar or images.of("sidecar"),
        config=_CONFIG_FILE,
        environment=_ENVIRONMENT,
        resources=pods.resources(spec.resources.sidecar, SIDECAR_REQUESTS),
        ports=ports,
        mounts=_mounts(group),
        **pods.own_probes(start_seconds=60),
    )


def _mounts(group: BrokerGroup) -> list[Json]:
    """Alike in both containers: they work on the same files."""
    mounts = [
        *pods.common_mounts(),
        pods.mount(_RUN, names.PATH_RUN),
        pods.mount(names.VOLUME_DATA, names.PATH_DATA),
    ]
    if group.spec.storage.commit_log is not None:
        mounts.append(pods.mount(names.VOLUME_COMMIT_LOG, names.PATH_COMMIT_LOG_VOLUME))
    return mounts
