"""The resources as values: defaults, what is derived, and what is refused with the field's path."""

from typing import Any

import pytest

from rocketmq_resources import names
from rocketmq_resources.broker_group import BrokerGroup, parse_broker_group
from rocketmq_resources.controller_cluster import ControllerCluster, parse_controller_cluster
from rocketmq_resources.decoding import SpecError
from rocketmq_resources.name_server import NameServer, parse_name_server
from rocketmq_resources.quantity import QuantityError, parse_quantity

MAIN = {"controllerRef": {"name": "main"}}

Spec = dict[str, Any]  # JSON


def body(spec: Spec | None, **metadata: object) -> dict[str, object]:
    return {"metadata": {"name": "broker-a", "namespace": "shop", **metadata}, "spec": spec}


ALONE: Spec = {"controllerRef": None, "nameServerRef": {"name": "n"}, "failover": {"mode": "none"}}
"""A group without controllers."""


def group(spec: Spec | None = None, **metadata: object) -> BrokerGroup:
    return parse_broker_group(body({**MAIN, **(spec or {})}, **metadata))


def cluster(spec: Spec | None = None, **metadata: object) -> ControllerCluster:
    return parse_controller_cluster(body(spec, **{"name": "main", **metadata}))


def name_server(spec: Spec | None = None, **metadata: object) -> NameServer:
    return parse_name_server(body(spec, **{"name": "main", **metadata}))


def test_a_group_with_nothing_but_its_controllers() -> None:
    made = group()
    assert (made.broker_name, made.cluster_name, made.spec.engine, made.spec.replicas) == (
        "broker-a",
        "DefaultCluster",
        "native",
        3,
    )
    assert made.controller == ("shop", "main")
    assert made.name_server is None
    assert made.embedded_name_servers
    assert made.storage_bytes == 10 * 2**30
    assert made.commit_log_bytes is None
    assert made.broker_memory is None
    assert made.pods_wanted == 3
    assert not made.metadata.deleting


def test_metadata_as_the_api_server_sends_it() -> None:
    made = group(
        uid="u-1",
        generation=7,
        resourceVersion="99",
        annotations={names.ANNOTATION_RESTARTED_AT: "2026-11-21T00:00:00Z", names.ANNOTATION_REBUILD: "broker-a-2"},
        finalizers=[names.FINALIZER],
        deletionTimestamp="2026-11-21T01:00:00Z",
        managedFields=[{"manager": "kubectl"}],
    )
    assert (made.metadata.uid, made.metadata.generation) == ("u-1", 7)
    assert made.restarted_at == "2026-11-21T00:00:00Z"
    assert made.rebuild == "broker-a-2"
    assert made.metadata.finalizers == (names.FINALIZER,)
    assert made.metadata.deleting


def test_status_is_kept_as_it_was_written() -> None:
    made = parse_broker_group(body(MAIN) | {"status": {"phase": "Running"}})
    assert made.status == {"phase": "Running"}


def test_fields_of_a_newer_schema_are_left_out() -> None:
    assert group({"fieldOfTomorrow": {"a": 1}}) == group()


@pytest.mark.parametrize(
    ("spec", "least"),
    [
        ({}, 2),
        ({"replicas": 5}, 2),
        ({"replicas": 5, "minInSyncReplicas": 3}, 3),
        ({"durability": "relaxed"}, 1),
        ({"durability": "relaxed", "replicas": 1}, 1),
        ({"durability": "relaxed", "minInSyncReplicas": 2}, 2),
        ({"durability": "strict", "minInSyncReplicas": 1}, 2),
    ],
)
def test_least_replicas_in_sync(spec: Spec, least: int) -> None:
    assert group(spec).min_in_sync_replicas == least


def test_a_hibernated_group_has_no_pods_and_keeps_its_size() -> None:
    made = group({"hibernated": True})
    assert (made.pods_wanted, made.spec.replicas) == (0, 3)


def test_priorities_go_by_the_pods_number() -> None:
    made = group({"priorities": [10, 20]})
    assert [made.priority(ordinal) for ordinal in range(3)] == [10, 20, None]


@pytest.mark.parametrize("engine", ["native", "apache"])
def test_a_slave_acts_if_the_field_says_so(engine: str) -> None:
    assert not group({"engine": engine}).acts
    acting = group({"engine": engine, "actingMaster": "reads", "config": {"lockInStrictMode": "true"}})
    assert acting.acts
    assert acting.strict_locks
    with pytest.raises(SpecError, match=r"enableSlaveActingMaster: is set by spec\.actingMaster"):
        group({"engine": engine, "config": {"enableSlaveActingMaster": "true"}})
    assert group({"engine": engine, "actingMaster": "readsAndEscape"}).acts
    with pytest.raises(SpecError, match=r"enableRemoteEscape: is set by spec\.actingMaster"):
        group({"engine": engine, "actingMaster": "reads", "config": {"enableRemoteEscape": "true"}})


def test_our_name_servers_show_acting_masters_unless_they_shall_not() -> None:
    for make in (name_server, cluster):
        assert make().shows_acting_masters
        assert make({"config": {"supportActingMaster": "TRUE"}}).shows_acting_masters
        assert not make({"config": {"supportActingMaster": "false"}}).shows_acting_masters


def test_references_may_lead_to_other_namespaces() -> None:
    made = group({"controllerRef": {"name": "c", "namespace": "infra"}, "nameServerRef": {"name": "n"}})
    assert made.controller == ("infra", "c")
    assert made.name_server == ("shop", "n")
    assert not made.embedded_name_servers


def test_controllers_and_name_servers_outside() -> None:
    made = parse_broker_group(body({"controllerAddr": "a:9878;b:9878", "namesrvAddr": "n:9876"}))
    assert made.controller is None
    assert made.name_server is None
    assert not made.embedded_name_servers


def test_a_group_without_controllers_has_name_servers() -> None:
    made = group(ALONE)
    assert group().fails_over
    assert (made.fails_over, made.controller, made.name_server) == (False, None, ("shop", "n"))
    outside = group({**ALONE, "nameServerRef": None, "namesrvAddr": "n:9876"})
    assert not outside.embedded_name_servers


@pytest.mark.parametrize(
    ("broker", "size"),
    [
        ({"limits": {"memory": "2Gi"}}, 2 * 2**30),
        ({"requests": {"memory": "1500M"}}, 1_500_000_000),
        ({"limits": {"memory": "2Gi"}, "requests": {"memory": "1Gi"}}, 2 * 2**30),
        ({"limits": {"memory": 1073741824}}, 2**30),
        ({"limits": {"cpu": "2"}}, None),
    ],
)
def test_memory_promised_to_the_broker(broker: Spec, size: int | None) -> None:
    assert group({"resources": {"broker": broker}}).broker_memory == size


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"replicas": 0}, "spec.replicas"),
        ({"replicas": "3"}, "spec.replicas"),
        ({"engine": "java"}, "spec.engine"),
        ({"storage": {"size": "ten"}}, "spec.storage.size"),
        ({"storage": {"size": "0Gi"}}, "spec.storage.size"),
        ({"storage": {"commitLog": {}}}, "spec.storage.commitLog"),
        ({"storage": {"commitLog": {"size": "1X"}}}, "spec.storage.commitLog.size"),
        ({"priorities": [1, -1]}, "spec.priorities[1]"),
        ({"resources": {"broker": {"limits": {"memory": "much"}}}}, "spec.resources.broker.limits.memory"),
        ({"controllerAddr": "a:1"}, "spec.controllerRef"),
        ({"controllerRef": None, "controllerAddr": "a:0"}, "spec.controllerAddr"),
        ({"controllerRef": None, "controllerAddr": "a:1;300.1.1.1:1"}, "spec.controllerAddr"),
        ({"controllerGrpcAddr": "a..b:1"}, "spec.controllerGrpcAddr"),
        ({"namesrvAddr": "[1.2]:1"}, "spec.namesrvAddr"),
        ({"controllerRef": None}, "spec.controllerRef"),
        ({"nameServerRef": {"name": "n"}, "namesrvAddr": "n:9876"}, "spec.nameServerRef"),
        ({"controllerRef": None, "controllerAddr": "a:1"}, "spec.nameServerRef"),
        ({**ALONE, "controllerRef": {"name": "c"}}, "spec.failover.mode"),
        ({**ALONE, "controllerAddr": "a:1"}, "spec.failover.mode"),
        ({**ALONE, "engine": "apache"}, "spec.failover.mode"),
        ({**ALONE, "nameServerRef": None}, "spec.nameServerRef"),
        ({"failover": {"mode": "manual"}}, "spec.failover.mode"),
        ({"config": {"enableControllerMode": "false"}}, "spec.config.enableControllerMode"),
        ({"replicas": 1}, "spec.replicas"),
        ({"minInSyncReplicas": 4}, "spec.minInSyncReplicas"),
        ({"config": {"brokerName": "x"}}, "spec.config.brokerName"),
        ({"config": {"allAckInSyncStateSet": "false"}}, "spec.config.allAckInSyncStateSet"),
        ({"engine": "apache", "config": {"lockInStrictMode": "True"}}, "spec.config.lockInStrictMode"),
        (
            {"engine": "apache", "config": {"enableBuildConsumeQueueConcurrently": "true"}},
            "spec.config.enableBuildConsumeQueueConcurrently",
        ),
        ({"config": {"totalReplicas": "3"}}, "spec.config.totalReplicas"),
        ({"config": {"enableSlaveActingMaster": "true"}}, "spec.config.enableSlaveActingMaster"),
        ({"actingMaster": "writes"}, "spec.actingMaster"),
        ({"actingMaster": False}, "spec.actingMaster"),
        ({"config": {"fileReservedTime": 48}}, "spec.config[...]"),
        ({"verification": {}}, "spec.verification"),
        ({"jvm": {"heap": "much"}}, "spec.jvm.heap"),
        ({"scheduling": {"tolerations": ["all"]}}, "spec.scheduling.tolerations[0]"),
    ],
)
def test_what_cannot_be_carried_out_is_refused_with_its_path(spec: Spec, path: str) -> None:
    with pytest.raises(SpecError) as refusal:
        group(spec)
    assert refusal.value.path == path
    assert str(refusal.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"metadata": {"namespace": "shop"}, "spec": MAIN}, "metadata"),
        ({"metadata": [], "spec": MAIN}, "metadata"),
        ({"metadata": {"name": "a", "namespace": "shop"}, "spec": "x"}, "spec"),
    ],
)
def test_a_body_of_another_shape_is_refused(wrong: dict[str, object], path: str) -> None:
    with pytest.raises(SpecError) as refusal:
        parse_broker_group(wrong)
    assert refusal.value.path == path


def test_an_empty_controller_cluster_has_defaults() -> None:
    made = cluster()
    assert (made.spec.members, made.quorum, made.own_raft_secret, made.raft_secret) == (
        3,
        2,
        True,
        "main-controller-raft",
    )
    assert made.controller_addr == (
        "main-controller-0.main-controller.shop.svc:9878;main-controller-1.main-controller.shop.svc:9878;"
        "main-controller-2.main-controller.shop.svc:9878"
    )
    assert made.peers(3).startswith("n0-main-controller-0.main-controller.shop.svc:9878;n1-main-controller-1.")
    assert made.controller_grpc_addr.endswith("main-controller-2.main-controller.shop.svc:9880")
    assert made.namesrv_addr is None
    assert made.storage_bytes == 2**30


def test_embedded_name_servers_are_where_the_members_are() -> None:
    made = cluster({"embeddedInNameServer": True, "members": 5, "raftSecretName": "mine"})
    assert made.namesrv_addr is not None
    assert made.namesrv_addr.split(";")[4] == "main-controller-4.main-controller.shop.svc:9876"
    assert (made.raft_secret, made.own_raft_secret) == ("mine", False)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"members": 4}, "spec.members"),
        ({"members": 1}, "spec.members"),
        (
            {"tuning": {"raftElectionTimeoutMs": 100, "raftHeartbeatIntervalMs": 50}},
            "spec.tuning.raftElectionTimeoutMs",
        ),
        ({"config": {"controllerDLegerPeers": "x"}}, "spec.config.controllerDLegerPeers"),
        ({"storage": {"size": ""}}, "spec.storage.size"),
    ],
)
def test_controller_clusters_that_cannot_be(spec: Spec, path: str) -> None:
    with pytest.raises(SpecError) as refusal:
        cluster(spec)
    assert refusal.value.path == path


def test_an_empty_name_server_has_defaults() -> None:
    made = name_server()
    assert made.namesrv_addr == "main-namesrv-0.main-namesrv.shop.svc:9876;main-namesrv-1.main-namesrv.shop.svc:9876"
    with pytest.raises(SpecError, match=r"spec\.config\.listenPort: is set by the operator"):
        name_server({"config": {"listenPort": "1"}})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10Gi", 10 * 2**30),
        ("1.5Gi", 3 * 2**29),
        ("1500m", 2),
        ("1e3", 1000),
        ("5E", 5 * 10**18),
        ("0", 0),
        (".5Ki", 512),
        (12, 12),
    ],
)
def test_quantities(text: object, value: int) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["", "-1", "1 Gi", "1gi", "Gi", "1.Gi.", "٣", "1e1000", -1, True, None, 1.5])
def test_what_is_no_quantity(text: object) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(text)


def test_names_of_pods_and_what_they_hold() -> None:
    assert names.pod_name("broker-a", 2) == "broker-a-2"
    assert names.ordinal_of("broker-a-12") == 12
    assert names.pvc_name(names.VOLUME_DATA, "broker-a", 1) == "data-broker-a-1"
    assert names.replica_config_key("broker-a", 0) == "broker-a-0.conf"
    for wrong in ("broker", "broker-a", "broker-a-", "broker-a-x", "broker-a-²"):
        with pytest.raises(ValueError, match="StatefulSet"):
            names.ordinal_of(wrong)


def test_labels_hold_what_is_selected_by() -> None:
    labels = names.labels("broker", "broker-a")
    assert labels["app.kubernetes.io/name"] == "rocketmq-broker"
    assert names.selector("broker", "broker-a").items() <= labels.items()
    assert names.selector_text("broker", "broker-a") == (
        "app.kubernetes.io/component=broker,rocketmq-ha.io/group=broker-a"
    )


def test_a_protection_that_no_process_of_ours_has_is_refused_with_its_key() -> None:
    acl = {"config": {"authenticationEnabled": "true"}}
    for make in (group, cluster, name_server):
        with pytest.raises(SpecError, match=r"spec\.config\.authenticationEnabled: there is no such protection"):
            make(acl)
        assert make({"config": {"authenticationEnabled": "false", "tlsMode": "permissive"}})
        assert make({"config": {**acl["config"], "ignoreSecurityKeys": "true"}})
    assert group({**acl, "engine": "apache"}), "official brokers do what the key says"
