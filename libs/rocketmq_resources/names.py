"""Every name that the operator gives or reads: kinds, labels, annotations, objects, ports, paths.

The one home of `rocketmq-ha.io/...`. Used by the plan and the builders, the handlers, the kubectl plugin and the
chart's tests; what people may rely on among these names is in docs/crd-reference.md.
"""

from typing import Final, Literal

from rocketmq_settings.controller import ControllerKeys
from rocketmq_settings.name_server import NameServerKeys
from rocketmq_settings.replica import FAST_PORT_DISTANCE
from rocketmq_settings.sidecar import SidecarKeys

GROUP: Final = "rocketmq-ha.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
CATEGORY: Final = "rocketmq"
"""`kubectl get rocketmq` lists all kinds."""

Kind = Literal["BrokerGroup", "ControllerCluster", "NameServer"]
PLURALS: Final[dict[Kind, str]] = {
    "BrokerGroup": "brokergroups",
    "ControllerCluster": "controllerclusters",
    "NameServer": "nameservers",
}

FIELD_MANAGER: Final = "rocketmq-ha"
"""The field manager of everything that the operator applies."""
FINALIZER: Final = "rocketmq-ha.io/finalizer"
LEASE: Final = "rocketmq-operator"

# Labels
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_INSTANCE: Final = "app.kubernetes.io/instance"
LABEL_COMPONENT: Final = "app.kubernetes.io/component"
LABEL_GROUP: Final = "rocketmq-ha.io/group"
LABEL_CONTROLLER_CLUSTER: Final = "rocketmq-ha.io/controller-cluster"
LABEL_NAME_SERVER: Final = "rocketmq-ha.io/name-server"
LABEL_CONTROLLER_CLIENT: Final = "rocketmq-ha.io/controller-client"
"""`true` on pods of users (mqadmin, a dashboard) that NetworkPolicies let to the controllers of their namespace."""
LABEL_ROLE: Final = "rocketmq-ha.io/role"
"""On pods: master, slave or none."""
LABEL_BROKER_ID: Final = "rocketmq-ha.io/broker-id"
"""On pods."""
LABEL_POD_INDEX: Final = "apps.kubernetes.io/pod-index"
"""Put on pods by Kubernetes >= 1.28."""
MANAGED_BY: Final = "rocketmq-ha"
RESERVED_PREFIXES: Final = (
    "app.kubernetes.io/",
    "rocketmq-ha.io/",
    "apps.kubernetes.io/",
    "statefulset.kubernetes.io/",
)
"""Labels and annotations that spec.podTemplate may not set."""

# Annotations
ANNOTATION_RESTARTED_AT: Final = "rocketmq-ha.io/restartedAt"
"""On a resource (RFC 3339): copied to its pods, so a new value restarts them one by one."""
ANNOTATION_REBUILD: Final = "rocketmq-ha.io/rebuild"
"""On a BrokerGroup: name of the pod whose replica is rebuilt from empty volumes."""
ANNOTATION_BROKER_ID: Final = "rocketmq-ha.io/broker-id"
"""On a PVC: the replica whose log it holds."""
ANNOTATION_RETIRED: Final = "rocketmq-ha.io/retired"
"""On a PVC that was kept when its replica was scaled down: the controllers have forgotten the id."""
ANNOTATION_CONFIG_HASH: Final = "rocketmq-ha.io/config-hash"
"""On pods: hash of their configuration, so that a change makes a new revision."""

ANNOTATION_REPLICATION_SECRET: Final = "rocketmq-ha.io/replication-secret"  # noqa: S105 - a name
"""On pods: the Secret by which their replica authenticates itself."""

ANNOTATION_GRPC_TLS: Final = "rocketmq-ha.io/grpc-tls"
"""On pods of replicas: the Secret with the certificate of the sidecar's gRPC port."""

ANNOTATION_IP_FAMILY: Final = "rocketmq-ha.io/ip-family"
"""Of a pod: which of its addresses it is known by, IPv4 or IPv6; without it, the first."""

# Components
Component = Literal["broker", "controller", "namesrv", "verify"]
CONTAINER_BROKER: Final = "broker"
CONTAINER_SIDECAR: Final = "sidecar"
CONTAINER_CONTROLLER: Final = "controller"
CONTAINER_NAMESRV: Final = "namesrv"
CONTAINER_VERIFY: Final = "verify"
CONTAINER_EXECUTOR: Final = "spark-kubernetes-executor"
"""Spark's default name."""

_OWNER_LABEL: Final[dict[Component, str]] = {
    "broker": LABEL_GROUP,
    "controller": LABEL_CONTROLLER_CLUSTER,
    "namesrv": LABEL_NAME_SERVER,
    "verify": LABEL_GROUP,
}

# Ports: the defaults of their keys, where these have one
_SIDECAR: Final = SidecarKeys()
PORT_BROKER: Final = _SIDECAR.listen_port
PORT_BROKER_VIP: Final = PORT_BROKER - FAST_PORT_DISTANCE
PORT_HA: Final = PORT_BROKER + 1
PORT_SIDECAR_GRPC: Final = _SIDECAR.sidecar_grpc_port
PORT_SIDECAR_METRICS: Final = _SIDECAR.metrics_prom_exporter_port
PORT_CONTROLLER: Final = 9878
PORT_CONTROLLER_RAFT: Final = PORT_CONTROLLER + 1
PORT_CONTROLLER_GRPC: Final = PORT_CONTROLLER + 2
PORT_CONTROLLER_METRICS: Final = ControllerKeys().metrics_prom_exporter_port
PORT_NAMESRV: Final = NameServerKeys().listen_port
PORT_NAMESRV_METRICS: Final = PORT_CONTROLLER_METRICS
"""Controllers and name servers share the number: in embedded mode they are one process."""
PORT_SPARK_DRIVER: Final = 7078
PORT_SPARK_BLOCKS: Final = 7079
"""Of driver and executors."""

# Paths inside pods
PATH_DATA: Final = "/data"
PATH_STORE: Final = "/data/store"
PATH_COMMIT_LOG_VOLUME: Final = "/commitlog"
PATH_COMMIT_LOG: Final = "/commitlog/commitlog"
PATH_CONFIG: Final = "/etc/rocketmq"
PATH_RUN: Final = "/run/rocketmq"
PATH_SOCKET: Final = "/run/rocketmq/sidecar.sock"
PATH_RAFT_SECRET: Final = "/etc/rocketmq-raft"  # noqa: S105 - a folder
PATH_REPLICATION_SECRET: Final = "/etc/rocketmq-replication"  # noqa: S105 - a folder
PATH_GRPC_TLS: Final = "/etc/rocketmq-tls"
KEY_RAFT_SECRET: Final = "raft.secret"  # noqa: S105 - the key in the Secret, and the file's name
KEY_REPLICATION_SECRET: Final = "replication.secret"  # noqa: S105 - the key in the Secret, and the file's name
ENV_FULL: Final = "ROCKETMQ_FULL"
"""Of a verification's pod: whether everything is compared."""
PATH_HISTORY: Final = "/history"
VOLUME_DATA: Final = "data"
VOLUME_COMMIT_LOG: Final = "commitlog"
USER_ID: Final = 1000
"""User and group of the images, and the fsGroup of their pods."""

# Limits of names: a pod's name becomes the value of a label (63), and a StatefulSet appends ordinal and revision hash
MAX_GROUP_NAME: Final = 50
MAX_VERIFIED_GROUP_NAME: Final = 40
"""With verification: a CronJob's name has at most 52 characters, and the host's name of its job's pod 63."""
MAX_CONTROLLER_CLUSTER_NAME: Final = 40
MAX_NAME_SERVER_NAME: Final = 42


def labels(component: Component, owner: str) -> dict[str, str]:
    """Of every object made for the resource `owner`; the role and the broker id come beside them on pods."""
    return {
        LABEL_MANAGED_BY: MANAGED_BY,
        LABEL_NAME: f"rocketmq-{component}",
        LABEL_INSTANCE: owner,
        LABEL_COMPONENT: component,
        _OWNER_LABEL[component]: owner,
    }


def selector(component: Component, owner: str) -> dict[str, str]:
    """What StatefulSets, Services, PDBs and NetworkPolicies select by: a subset of `labels` that never changes."""
    return {LABEL_COMPONENT: component, _OWNER_LABEL[component]: owner}


def selector_text(component: Component, owner: str) -> str:
    """`selector` as status.selector and kubectl -l take it."""
    return ",".join(f"{key}={value}" for key, value in sorted(selector(component, owner).items()))


def pod_name(stateful_set: str, ordinal: int) -> str:
    """Of the StatefulSet's pod."""
    return f"{stateful_set}-{ordinal}"


def ordinal_of(pod: str) -> int:
    """The number at the end of a pod's name.

    Raises:
        ValueError: not the name of a StatefulSet's pod.
    """
    _, separator, number = pod.rpartition("-")
    if not separator or not (number.isascii() and number.isdecimal()):
        raise ValueError(f"{pod!r} is not the name of a pod of a StatefulSet")
    return int(number)


def pod_host(pod: str, service: str, namespace: str) -> str:
    """The DNS name of a pod behind its headless Service; without the cluster's domain, which pods search for."""
    return f"{pod}.{service}.{namespace}.svc"


def address(stateful_set: str, namespace: str, ordinal: int, port: int) -> str:
    """`host:port` of one pod, whose headless Service has the StatefulSet's name."""
    return f"{pod_host(pod_name(stateful_set, ordinal), stateful_set, namespace)}:{port}"


def addresses(stateful_set: str, namespace: str, count: int, port: int) -> str:
    """`host:port;host:port` of the pods 0..count-1."""
    return ";".join(address(stateful_set, namespace, ordinal, port) for ordinal in range(count))


# Broker groups: StatefulSet, Service, PDB and NetworkPolicy have the group's name


def group_config(group: str) -> str:
    """The ConfigMap with one key per replica."""
    return f"{group}-config"


def replica_config_key(group: str, ordinal: int) -> str:
    """The replica's key in that ConfigMap, and its file in /etc/rocketmq."""
    return f"{pod_name(group, ordinal)}.conf"


def pvc_name(volume: str, stateful_set: str, ordinal: int) -> str:
    """The PVC of claim template `volume`, as the StatefulSet names it."""
    return f"{volume}-{pod_name(stateful_set, ordinal)}"


def verification(group: str) -> str:
    """The CronJob that compares the replicas' logs (spec.verification), and its other objects."""
    return f"{group}-verify"


def full_verification(group: str) -> str:
    """The CronJob that compares everything (spec.verification.fullSchedule)."""
    return f"{verification(group)}-full"


def replication_secret(group: str) -> str:
    """The Secret of the operator, without spec.replicationSecretName."""
    return f"{group}-replication"


# Controllers: StatefulSet, Service, ConfigMap, PDB and NetworkPolicy share a name


def controller(cluster: str) -> str:
    """The name of a ControllerCluster's objects."""
    return f"{cluster}-controller"


def raft_secret(cluster: str) -> str:
    """The Secret of the operator, without spec.raftSecretName."""
    return f"{controller(cluster)}-raft"


def member_id(ordinal: int) -> str:
    """The member's id in controllerDLegerPeers."""
    return f"n{ordinal}"


def member_ordinal(member_id: str) -> int | None:
    """The reverse; None: not an id that a pod has."""
    number = member_id.removeprefix("n")
    return int(number) if number.isascii() and number.isdigit() and member_id == f"n{int(number)}" else None


def controller_peers(cluster: str, namespace: str, members: int) -> str:
    """controllerDLegerPeers: `n0-host:port;n1-host:port`."""
    parts = addresses(controller(cluster), namespace, members, PORT_CONTROLLER).split(";")
    return ";".join(f"{member_id(ordinal)}-{address}" for ordinal, address in enumerate(parts))


def controller_addr(cluster: str, namespace: str, members: int) -> str:
    """controllerAddr of every broker."""
    return addresses(controller(cluster), namespace, members, PORT_CONTROLLER)


def controller_grpc_addr(cluster: str, namespace: str, members: int) -> str:
    """Where the members serve gRPC."""
    return addresses(controller(cluster), namespace, members, PORT_CONTROLLER_GRPC)


def embedded_namesrv_addr(cluster: str, namespace: str, members: int) -> str:
    """namesrvAddr of a ControllerCluster with embedded name servers."""
    return addresses(controller(cluster), namespace, members, PORT_NAMESRV)


# Name servers


def namesrv(name_server: str) -> str:
    """The name of a NameServer's objects."""
    return f"{name_server}-namesrv"


def namesrv_addr(name_server: str, namespace: str, replicas: int) -> str:
    """namesrvAddr of brokers and clients."""
    return addresses(namesrv(name_server), namespace, replicas, PORT_NAMESRV)
