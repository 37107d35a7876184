"""The objects of a NameServer: StatefulSet, headless Service, ConfigMap, disruption budget, network policy."""

from typing import Final

from rocketmq_operator.domain.manifests import pods
from rocketmq_operator.domain.manifests.disruption import disruption_budget
from rocketmq_operator.domain.manifests.network_policies import Access, name_server_policy
from rocketmq_operator.domain.manifests.objects import (
    Images,
    Owner,
    config_hash,
    config_map,
    headless_service,
    properties_text,
)
from rocketmq_operator.domain.manifests.stateful_sets import stateful_set
from rocketmq_resources import names
from rocketmq_resources.acting import NAME_SERVER_DEFAULTS
from rocketmq_resources.decoding import Json
from rocketmq_resources.name_server import NameServer

REQUESTS: Final = {"cpu": "50m", "memory": "128Mi"}
"""Requests unless the resource sets them."""

CONFIG_FILE: Final = "namesrv.conf"
PORTS: Final = {"namesrv": names.PORT_NAMESRV, "metrics": names.PORT_NAMESRV_METRICS}


def name_server_objects(server: NameServer, images: Images, access: Access | None = None) -> tuple[Json, ...]:
    """All objects in the order to apply them. Kubernetes rolls name servers itself, since brokers register again within
    seconds; the KV configuration lives as long as its pod."""
    owner, name = Owner("NameServer", "namesrv", server.metadata), names.namesrv(server.name)
    text = _config(server)
    return (
        config_map(owner, name, {CONFIG_FILE: text}),
        headless_service(owner, name, PORTS, server.spec.service),
        *name_server_policy(owner, name, access or Access()),
        *disruption_budget(owner, name, replicas=server.spec.replicas, needed=1),
        stateful_set(
            owner,
            name,
            replicas=server.spec.replicas,
            pod=_pod(owner, server, images, text),
            rolled_by_operator=False,
        ),
    )


def _config(server: NameServer) -> str:
    return properties_text(
        NAME_SERVER_DEFAULTS,
        server.spec.config,
        {
            "listenPort": names.PORT_NAMESRV,
            "metricsPromExporterPort": names.PORT_NAMESRV_METRICS,
            "kvConfigPath": f"{names.PATH_DATA}/kvConfig.json",
            "configStorePath": f"{names.PATH_DATA}/namesrv.properties",
        },
    )


def _pod(owner: Owner, server: NameServer, images: Images, config: str) -> Json:
    spec = server.spec
    container = pods.container(
        spec,
        names.CONTAINER_NAMESRV,
        spec.image.namesrv or images.of("namesrv"),
        config=CONFIG_FILE,
        environment={"ROCKETMQ_LOGFORMAT": "json"},
        resources=pods.resources(spec.resources, REQUESTS),
        ports=PORTS,
        mounts=[*pods.common_mounts(), pods.mount(names.VOLUME_DATA, names.PATH_DATA)],
        **pods.own_probes(start_seconds=60),
    )
    volumes = [
        pods.config_volume(names.namesrv(server.name)),
        pods.empty_dir(pods.TEMPORARY, "64Mi"),
        pods.empty_dir(names.VOLUME_DATA, "64Mi"),
    ]
    return pods.pod(owner, server, images, config_hash=config_hash([config]), containers=[container], volumes=volumes)
