"""A namespace `shop` with a group `orders` of three replicas, its controllers `main`, and all their gRPC services."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import yaml

from rocketmq_api import controller_admin_pb2 as cpb
from rocketmq_api import controller_admin_pb2_grpc as cgrpc
from rocketmq_api import sidecar_admin_pb2 as spb
from rocketmq_api import sidecar_admin_pb2_grpc as sgrpc
from rocketmq_resources import names
from tests.kubectl.fake_api import FakeApi

NAMESPACE, GROUP, CLUSTER = "shop", "orders", "main"
CREATED, STATUS_WRITTEN = "2026-01-01T10:00:00Z", "2026-01-01T11:55:00Z"
Body = dict[str, Any]
Context = grpc.ServicerContext
GROUPS = f"/apis/rocketmq-ha.io/v1alpha1/namespaces/{NAMESPACE}/brokergroups"
CLUSTERS = f"/apis/rocketmq-ha.io/v1alpha1/namespaces/{NAMESPACE}/controllerclusters"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


class FakeCluster:
    """Change `group` (the controllers' view), `replicas` (the sidecars') or the API's objects, then run commands."""

    def __init__(self, folder: Path) -> None:
        self.api = FakeApi()
        self.group = a_group()
        self.replicas = {ordinal: a_replica(ordinal) for ordinal in range(3)}
        self.leader = "n1"
        self.elections: list[cpb.ElectMasterRequest] = []
        self.hand_overs: list[spb.HandOverRequest] = []
        self.on_hand_over: Callable[[Context], None] = lambda context: None
        self._servers: list[grpc.Server] = []
        self.kubeconfig = folder / "kubeconfig"
        self._write_kubeconfig()
        self._make_objects()
        self._serve()

    def stop(self) -> None:
        for server in self._servers:
            server.stop(0).wait(5)
        self.api.stop()

    @property
    def resource(self) -> Body:
        return self.api.objects[f"{GROUPS}/{GROUP}"]

    def master_is(self, ordinal: int) -> None:
        """What a hand-over to, or an election of, this replica leads to."""
        self.group.master_epoch += 1
        self.group.sync_state_set_epoch += 1
        self.group.master_broker_id = ordinal + 1
        self.group.master_address = self.group.replicas[ordinal].address
        for other, replica in self.replicas.items():
            replica.role = spb.ROLE_MASTER if other == ordinal else spb.ROLE_SLAVE
            replica.master_epoch = self.group.master_epoch

    def _write_kubeconfig(self) -> None:
        config = {
            "current-context": "fake",
            "clusters": [{"name": "c", "cluster": {"server": self.api.url}}],
            "users": [{"name": "u", "user": {"token": "the-token"}}],
            "contexts": [
                {"name": "fake", "context": {"cluster": "c", "user": "u", "namespace": NAMESPACE}},
                {"name": "elsewhere", "context": {"cluster": "c", "user": "u"}},
            ],
        }
        self.api.token = "the-token"
        self.kubeconfig.write_text(yaml.safe_dump(config))

    def _make_objects(self) -> None:
        self.api.put("/version", {"metadata": {}, "gitVersion": "v1.33.0"})
        self.api.put("/apis/rocketmq-ha.io/v1alpha1", {"metadata": {}})
        self.api.put(f"{GROUPS}/{GROUP}", group_resource())
        self.api.put(f"{CLUSTERS}/{CLUSTER}", cluster_resource())
        for ordinal in range(3):
            name = f"{GROUP}-{ordinal}"
            self.api.put(f"{PODS}/{name}", a_pod(name, "broker", GROUP, f"10.1.0.{ordinal + 1}", ordinal))
            name = f"{CLUSTER}-controller-{ordinal}"
            self.api.put(f"{PODS}/{name}", a_pod(name, "controller", CLUSTER, f"10.1.1.{ordinal + 1}"))

    def _serve(self) -> None:
        for ordinal in range(3):
            controller = self._server()
            cgrpc.add_ControllerAdminServicer_to_server(_Controller(self, f"n{ordinal}"), controller)
            self._open(controller, f"{CLUSTER}-controller-{ordinal}", names.PORT_CONTROLLER_GRPC)
            sidecar = self._server()
            sgrpc.add_SidecarAdminServicer_to_server(_Sidecar(self, ordinal), sidecar)
            self._open(sidecar, f"{GROUP}-{ordinal}", names.PORT_SIDECAR_GRPC)

    def _server(self) -> grpc.Server:
        server = grpc.server(ThreadPoolExecutor(2))
        self._servers.append(server)
        return server

    def _open(self, server: grpc.Server, pod: str, port: int) -> None:
        self.api.ports[NAMESPACE, pod, port] = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()


class _Controller(cgrpc.ControllerAdminServicer):
    def __init__(self, cluster: FakeCluster, id_: str) -> None:
        self._cluster, self._id = cluster, id_

    def _require_leader(self, context: Context) -> None:
        if self._cluster.leader != self._id:
            context.set_trailing_metadata((("rocketmq-code", "2007"),))
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "The broker is not the leader")

    def GetGroup(self, request: cpb.GetGroupRequest, context: Context) -> cpb.GetGroupResponse:  # noqa: N802 - .proto
        self._require_leader(context)
        if request.broker_name != self._cluster.group.broker_name:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such group")
        return cpb.GetGroupResponse(group=self._cluster.group)

    def WatchGroups(self, request: cpb.WatchGroupsRequest, context: Context) -> Any:  # noqa: N802 - .proto
        self._require_leader(context)
        yield cpb.WatchGroupsResponse(kind=cpb.WatchGroupsResponse.KIND_CURRENT, group=self._cluster.group)
        yield cpb.WatchGroupsResponse(kind=cpb.WatchGroupsResponse.KIND_SYNCED)

    def GetMembers(self, request: cpb.GetMembersRequest, context: Context) -> cpb.GetMembersResponse:  # noqa: N802 - .proto
        leads = self._cluster.leader == self._id
        return cpb.GetMembersResponse(
            group="main", answered_by=self._id, leader_id=self._cluster.leader, term=7, commit_index=42,
            applied_index=42 if leads else 41,
            members=[
                cpb.Member(
                    id=f"n{n}", address=f"main-controller-{n}.main-controller.shop.svc:9878",
                    is_leader=f"n{n}" == self._cluster.leader, connected=True,
                    match_index=42 if leads or f"n{n}" == self._id else None,
                )
                for n in range(3)
            ],
        )  # fmt: skip

    def ElectMaster(self, request: cpb.ElectMasterRequest, context: Context) -> cpb.ElectMasterResponse:  # noqa: N802 - .proto
        self._require_leader(context)
        self._cluster.elections.append(request)
        self._cluster.master_is(request.broker_id - 1)
        return cpb.ElectMasterResponse(group=self._cluster.group, elected=True)

    def TransferLeadership(self, request: cpb.TransferLeadershipRequest, context: Context) -> Any:  # noqa: N802 - .proto
        self._require_leader(context)
        self._cluster.leader = request.target_id or "n0"
        return cpb.TransferLeadershipResponse(leader_id=self._cluster.leader)


class _Sidecar(sgrpc.SidecarAdminServicer):
    def __init__(self, cluster: FakeCluster, ordinal: int) -> None:
        self._cluster, self._ordinal = cluster, ordinal

    def GetReplica(self, request: spb.GetReplicaRequest, context: Context) -> spb.GetReplicaResponse:  # noqa: N802 - .proto
        return spb.GetReplicaResponse(replica=self._cluster.replicas[self._ordinal])

    def HandOver(self, request: spb.HandOverRequest, context: Context) -> spb.HandOverResponse:  # noqa: N802 - .proto
        self._cluster.hand_overs.append(request)
        self._cluster.on_hand_over(context)
        target = request.broker_id if request.HasField("broker_id") else 2
        self._cluster.master_is(target - 1)
        return spb.HandOverResponse(master_broker_id=target, master_epoch=self._cluster.group.master_epoch)


def a_group() -> cpb.Group:
    """orders-0 leads; orders-2 is behind and not in sync."""
    replicas = [
        cpb.Replica(
            broker_id=ordinal + 1, address=f"10.1.0.{ordinal + 1}:10911", in_sync_state_set=ordinal < 2,
            liveness=cpb.LIVENESS_ALIVE, max_offset=offset, epoch=3,
        )
        for ordinal, offset in enumerate((5000, 5000, 4200))
    ]  # fmt: skip
    return cpb.Group(
        cluster_name="DefaultCluster", broker_name=GROUP, master_epoch=3, sync_state_set_epoch=9, master_broker_id=1,
        master_address="10.1.0.1:10911", replicas=replicas, next_broker_id=4,
    )  # fmt: skip


def a_replica(ordinal: int) -> spb.Replica:
    epochs = [(1, 0, 1000), (2, 1000, 3000), (3, 3000, (5000, 5000, 4200)[ordinal])]
    return spb.Replica(
        cluster_name="DefaultCluster", broker_name=GROUP, broker_id=ordinal + 1,
        role=spb.ROLE_SLAVE if ordinal else spb.ROLE_MASTER, master_broker_id=1, master_epoch=3, sync_state_set=[1, 2],
        max_offset=epochs[-1][2], epochs=[spb.Epoch(epoch=e, start_offset=s, end_offset=t) for e, s, t in epochs],
        broker_connected=True, engine="native", address=f"10.1.0.{ordinal + 1}:10911",
    )  # fmt: skip


def a_pod(name: str, component: names.Component, owner: str, ip: str, ordinal: int | None = None) -> Body:
    labels = names.labels(component, owner)
    if ordinal is not None:
        labels[names.LABEL_BROKER_ID] = str(ordinal + 1)
    containers = ["broker", "sidecar"] if component == "broker" else [component]
    return {
        "metadata": {
            "name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "labels": labels, "creationTimestamp": CREATED,
        },
        "spec": {"nodeName": f"node-{name[-1]}", "containers": [{"name": one} for one in containers]},
        "status": {
            "phase": "Running", "podIP": ip,
            "containerStatuses": [{"name": one, "ready": True, "restartCount": 0} for one in containers],
        },
    }  # fmt: skip


def conditions(**changed: str) -> list[Body]:
    usual = {
        "Ready": "True", "Available": "True", "ActingMaster": "False", "SyncStateSetHealthy": "True",
        "Progressing": "False", "Paused": "False", "Degraded": "False",
    }  # fmt: skip
    return [
        {"type": kind, "status": status, "reason": "AsExpected", "message": "", "lastTransitionTime": CREATED}
        for kind, status in {**usual, **changed}.items()
    ]


def group_resource() -> Body:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "BrokerGroup",
        "metadata": {
            "name": GROUP, "namespace": NAMESPACE, "generation": 4, "creationTimestamp": CREATED,
            "managedFields": [{"manager": "rocketmq-ha", "subresource": "status", "time": STATUS_WRITTEN}],
        },
        "spec": {"controllerRef": {"name": CLUSTER}},
        "status": {
            "observedGeneration": 4, "phase": "Running", "master": f"{GROUP}-0", "masterBrokerId": 1, "masterEpoch": 3,
            "syncStateSetEpoch": 8, "inSync": "3/3", "replicas": 3, "readyReplicas": 3, "conditions": conditions(),
            "replicaStatuses": [
                {
                    "pod": f"{GROUP}-{n}", "brokerId": n + 1, "role": "slave" if n else "master",
                    "address": f"10.1.0.{n + 1}:10911", "node": f"node-{n}", "maxOffset": 4000, "lag": 0,
                    "inSync": True, "alive": True, "ready": True, "upToDate": True, "fenced": False,
                }
                for n in range(3)
            ],
        },
    }  # fmt: skip


def cluster_resource() -> Body:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ControllerCluster",
        "metadata": {"name": CLUSTER, "namespace": NAMESPACE, "generation": 1, "creationTimestamp": CREATED},
        "spec": {},
        "status": {
            "observedGeneration": 1, "phase": "Running", "leader": f"{CLUSTER}-controller-1", "term": 7, "members": 3,
            "readyMembers": 3, "connectedMembers": 3, "conditions": conditions(),
        },
    }  # fmt: skip
