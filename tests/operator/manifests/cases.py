"""Resources and what is made of them, for all tests of the manifests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rocketmq_formats import properties
from rocketmq_operator.domain.manifests.controllers import controller_cluster_objects, raft_secret
from rocketmq_operator.domain.manifests.groups.config_file import Endpoints
from rocketmq_operator.domain.manifests.groups.objects_of_group import broker_group_objects
from rocketmq_operator.domain.manifests.name_servers import name_server_objects
from rocketmq_operator.domain.manifests.objects import Images
from rocketmq_resources.broker_group import BrokerGroup, parse_broker_group
from rocketmq_resources.controller_cluster import ControllerCluster, parse_controller_cluster
from rocketmq_resources.name_server import NameServer, parse_name_server
from tests.paths import ROOT

Object = dict[str, Any]  # JSON of Kubernetes' API

EXAMPLES = ROOT / "examples"
IMAGES = Images(repository="rocketmq-ha", tag="dev")
UID = "6f0e2a4c-5a0e-4f6e-9d2b-0c1d2e3f4a5b"

FULL_SCHEDULING: Object = {
    "antiAffinity": "required",
    "topologyKey": "topology.kubernetes.io/zone",
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": []}]}
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "loud"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        },
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "brokers", "operator": "Exists"}],
    "priorityClassName": "high",
}
FULL_TEMPLATE: Object = {
    "labels": {"team": "shop", "app.kubernetes.io/name": "not-yours"},
    "annotations": {"example.org/cost-centre": "7"},
    "env": [{"name": "TZ", "value": "Europe/Berlin"}, {"name": "POD_NAME", "value": "not-yours"}],
    "serviceAccountName": "brokers",
}

CONTROLLERS: dict[str, Object] = {
    "controllers": {},
    "controllers-dual-stack": {"service": {"ipFamilyPolicy": "RequireDualStack"}},
    "controllers-full": {
        "members": 5,
        "embeddedInNameServer": True,
        "image": {"controller": "registry.example.org/namesrv:1", "pullPolicy": "Always", "pullSecrets": ["pull"]},
        "storage": {"size": "2Gi", "storageClassName": "fast", "reclaimPolicy": "Delete"},
        "raftSecretName": "mine",
        "grpcTlsSecretName": "tls",
        "resources": {"limits": {"memory": "256Mi"}},
        "config": {"electMasterMaxRetryCount": "5", "notifyMinBrokerIdChanged": "false"},
        "tuning": {"raftElectionTimeoutMs": 1000, "enableElectUncleanMaster": True},
        "scheduling": FULL_SCHEDULING,
        "podTemplate": FULL_TEMPLATE,
    },
}
NAME_SERVERS: dict[str, Object] = {
    "name-server": {},
    "name-server-ipv6": {"service": {"ipFamilies": ["IPv6"]}},
    "name-server-single": {"replicas": 1, "config": {"orderMessageEnable": "true"}, "podTemplate": FULL_TEMPLATE},
}
GROUPS: dict[str, Object] = {
    "group": {"controllerRef": {"name": "main"}, "nameServerRef": {"name": "main"}},
    "group-full": {
        "controllerAddr": "c0.example.org:9878;c1.example.org:9878;c2.example.org:9878",
        "namesrvAddr": "ns.example.org:9876",
        "clusterName": "Zurich.1",
        "brokerName": "broker-a",
        "replicas": 5,
        "minInSyncReplicas": 3,
        "actingMaster": "reads",
        "image": {"broker": "registry.example.org/broker:1", "sidecar": "registry.example.org/sidecar:1"},
        "storage": {
            "size": "100Gi",
            "storageClassName": "fast",
            "reclaimPolicy": "Delete",
            "commitLog": {"size": "1Ti", "storageClassName": "faster"},
        },
        "resources": {
            "broker": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "8Gi"}},
            "sidecar": {"limits": {"cpu": "1"}},
        },
        "config": {"fileReservedTime": "48", "flushDiskType": "SYNC_FLUSH", "regionId": "Zürich: west=1"},
        "scheduling": FULL_SCHEDULING,
        "podTemplate": FULL_TEMPLATE,
        "priorities": [1, 2],
        "failover": {"leaseTimeoutMs": 1000, "hangTimeoutMs": 1500, "heartbeatIntervalMs": 250},
        "replicationSecretName": "mine",
        "grpcTlsSecretName": "tls",
    },
    "group-single": {
        "controllerRef": {"name": "main"},
        "nameServerRef": {"name": "main"},
        "durability": "relaxed",
        "replicas": 1,
        "scheduling": {"antiAffinity": "none"},
    },
    "group-dual-stack": {
        "controllerRef": {"name": "main"},
        "nameServerRef": {"name": "main"},
        "service": {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]},
    },
    "group-without-controllers": {"nameServerRef": {"name": "main"}, "failover": {"mode": "none"}},
    "group-apache": {
        "engine": "apache",
        "controllerRef": {"name": "main"},
        "nameServerRef": {"name": "main"},
        "resources": {"broker": {"limits": {"memory": "4Gi"}}},
        "jvm": {"directMemory": "512Mi", "options": ["-XX:+AlwaysPreTouch"]},
    },
}


def body(name: str, spec: Object, **metadata: object) -> Object:
    return {"metadata": {"name": name, "namespace": "shop", "uid": UID, **metadata}, "spec": spec}


def cluster(spec: Object, **metadata: object) -> ControllerCluster:
    return parse_controller_cluster(body("main", spec, **metadata))


def name_server(spec: Object, **metadata: object) -> NameServer:
    return parse_name_server(body("main", spec, **metadata))


def group(spec: Object, **metadata: object) -> BrokerGroup:
    return parse_broker_group(body("broker-a", spec, **metadata))


def endpoints(of: BrokerGroup, clusters: Mapping[str, ControllerCluster]) -> Endpoints:
    """As the plan finds them; the name server that is referred to has two replicas."""
    cluster_of = None if of.controller is None else clusters[of.controller[1]]
    embedded = cluster_of.namesrv_addr if cluster_of and of.embedded_name_servers else None
    name_servers = of.spec.namesrv_addr or embedded or name_server({}).namesrv_addr
    controllers = of.spec.controller_addr or (cluster_of or cluster({})).controller_addr
    return Endpoints(controllers if of.fails_over else "", name_servers)


def group_objects(
    of: BrokerGroup, clusters: Mapping[str, ControllerCluster] | None = None, *, replicas: int | None = None
) -> list[Object]:
    """With the controllers `main` unless others are given; with all pods that the spec wants unless `replicas` is."""
    found = endpoints(of, clusters or {"main": cluster({})})
    made = broker_group_objects(of, found, IMAGES, of.pods_wanted if replicas is None else replicas)
    return [dict(each) for each in made]


def cluster_objects(of: ControllerCluster) -> list[Object]:
    secret = [raft_secret(of, "0123456789abcdef")] if of.own_raft_secret else []
    return [dict(each) for each in (*secret, *controller_cluster_objects(of, IMAGES))]


def name_server_objects_of(of: NameServer) -> list[Object]:
    return [dict(each) for each in name_server_objects(of, IMAGES)]


def everything() -> dict[str, list[Object]]:
    """All cases by name."""
    return {
        **{name: cluster_objects(cluster(spec)) for name, spec in CONTROLLERS.items()},
        **{name: name_server_objects_of(name_server(spec)) for name, spec in NAME_SERVERS.items()},
        **{name: group_objects(group(spec)) for name, spec in GROUPS.items()},
    }


def examples() -> dict[str, list[Object]]:
    """What is made of all that each file of examples/ applies, in a namespace `shop`."""
    return {path.stem: _made_of(path) for path in sorted(EXAMPLES.glob("*.yaml"))}


def _made_of(path: Path) -> list[Object]:
    made: list[Object] = []
    clusters: dict[str, ControllerCluster] = {"main": cluster({})}
    for resource in yaml.safe_load_all(path.read_text()):
        resource["metadata"].update(namespace="shop", uid=UID)
        match resource["kind"]:
            case "ControllerCluster":
                of = parse_controller_cluster(resource)
                clusters[of.name] = of
                made += cluster_objects(of)
            case "NameServer":
                made += name_server_objects_of(parse_name_server(resource))
            case "BrokerGroup":
                made += group_objects(parse_broker_group(resource), clusters)
    return made


def replica_file(change: Object) -> dict[str, str]:
    """The file of the first replica of the case `group` with `change` of its spec."""
    objects = group_objects(group({**GROUPS["group"], **change}), {"main": cluster({"embeddedInNameServer": True})})
    return properties.parse(one(objects, "ConfigMap")["data"]["broker-a-0.conf"].encode())


def keys_set_by(change: Object) -> dict[str, str]:
    """What `change` adds to that file, or changes there."""
    return dict(replica_file(change).items() - replica_file({}).items())


def one(objects: list[Object], kind: str) -> Object:
    [found] = [each for each in objects if each["kind"] == kind]
    return found


def pod_spec(objects: list[Object]) -> Object:
    found: Object = one(objects, "StatefulSet")["spec"]["template"]["spec"]
    return found


def container(objects: list[Object], name: str) -> Object:
    [found] = [each for each in pod_spec(objects)["containers"] if each["name"] == name]
    found_object: Object = found
    return found_object


def environment(of: Object, *, pod: str, ip: str = "10.0.0.7", ips: str = "10.0.0.7") -> dict[str, str]:
    """The container's variables as the kubelet makes them in `pod`."""
    fields = {
        "metadata.name": pod,
        "status.podIP": ip,
        "status.podIPs": ips,
        "metadata.labels['apps.kubernetes.io/pod-index']": pod.rpartition("-")[2],
    }
    values: dict[str, str] = {}
    for entry in of["env"]:
        if "valueFrom" in entry:
            values[entry["name"]] = fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            values[entry["name"]] = expanded(entry["value"], values)
    return values


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """`$(NAME)` replaced, as in values of `env` and in `args`."""
    for name, value in variables.items():
        text = text.replace(f"$({name})", value)
    return text


def config_file(objects: list[Object], of: Object, variables: Mapping[str, str]) -> dict[str, str]:
    """The file that the container's arguments name."""
    flag, path = (expanded(argument, variables) for argument in of["args"])
    assert flag == "-c"
    folder, _, name = path.rpartition("/")
    assert {"name": "config", "mountPath": folder, "readOnly": True} in of["volumeMounts"]
    return properties.parse(one(objects, "ConfigMap")["data"][name].encode())
