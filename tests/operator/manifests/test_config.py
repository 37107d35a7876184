"""The configuration files are what the processes themselves take: every file is read by the real settings of the
process, with the environment that the kubelet would make."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_broker.settings import BrokerSettings
from rocketmq_controller.settings import ControllerSettings
from rocketmq_formats import properties
from rocketmq_namesrv.embedded import controller_config
from rocketmq_namesrv.settings import NameServerSettings
from rocketmq_operator.domain.manifests.groups.config_file import COMMIT_LOG_FILE_SIZE
from rocketmq_operator.domain.manifests.objects import properties_text
from rocketmq_resources import names, reserved_keys
from rocketmq_resources.acting import NAME_SERVER_DEFAULTS
from rocketmq_runtime.config.settings import build_settings, from_environment
from rocketmq_settings.controller import ControllerKeys
from rocketmq_settings.table import OF_THE_BROKER, OF_THE_SIDECAR, keys
from rocketmq_sidecar.settings import SidecarSettings
from tests.operator.manifests import cases
from tests.operator.manifests.cases import Object, keys_set_by, replica_file

NATIVE = [name for name, spec in cases.GROUPS.items() if spec.get("engine") != "apache"]


def replica(name: str, ordinal: int = 0) -> tuple[BrokerSettings, SidecarSettings]:
    """The settings of both halves; fails on a key that one of them would report."""
    objects = cases.group_objects(cases.group(cases.GROUPS[name]))
    broker, sidecar = cases.container(objects, "broker"), cases.container(objects, "sidecar")
    variables = cases.environment(broker, pod=f"broker-a-{ordinal}")
    file = cases.config_file(objects, broker, variables)
    assert cases.config_file(objects, sidecar, variables) == file
    half = build_settings(BrokerSettings, file, from_environment(BrokerSettings, variables))
    assert set(half.unknown_keys) <= OF_THE_SIDECAR
    other_variables = cases.environment(sidecar, pod=f"broker-a-{ordinal}")
    other = build_settings(SidecarSettings, file, from_environment(SidecarSettings, other_variables))
    assert set(other.unknown_keys) <= OF_THE_BROKER
    return half.settings, other.settings


@pytest.mark.parametrize("name", NATIVE)
def test_both_halves_of_a_native_replica_agree(name: str) -> None:
    broker, sidecar = replica(name)
    for key in (
        "name",
        "broker_cluster_name",
        "broker_ip1",
        "listen_port",
        "ha_port",
        "root",
        "commit_log_path",
        "socket_path",
        "mapped_file_size_commit_log",
        "durability",
        "min_in_sync_replicas",
        "flush_disk_type",
        "log_format",
    ):
        assert getattr(broker, key) == getattr(sidecar, key), key
    assert broker.broker_ip1 == "10.0.0.7"
    assert broker.log_format == "json"
    assert str(broker.socket_path) == names.PATH_SOCKET
    assert (broker.listen_port, broker.fast_port) == (names.PORT_BROKER, names.PORT_BROKER_VIP)
    assert (sidecar.ha_port, sidecar.metrics_prom_exporter_port) == (names.PORT_HA, names.PORT_SIDECAR_METRICS)
    assert sidecar.sidecar_grpc_port == names.PORT_SIDECAR_GRPC
    assert sidecar.broker_engine == "native"


def test_the_spec_is_in_the_configuration() -> None:
    broker, sidecar = replica("group-full", ordinal=1)
    assert (broker.broker_cluster_name, broker.name) == ("Zurich.1", "broker-a")
    assert (broker.region_id, broker.file_reserved_time, broker.flush_disk_type) == ("Zürich: west=1", 48, "SYNC_FLUSH")
    assert (broker.copies_needed, sidecar.min_in_sync_replicas) == (3, 3)
    assert str(broker.commit_log_path) == "/commitlog/commitlog"
    assert len(sidecar.controllers) == 3
    assert (sidecar.broker_lease_timeout_ms, sidecar.broker_hang_timeout_ms) == (1000, 1500)
    assert sidecar.broker_heartbeat_interval == 250
    default = 2**31 - 1
    priorities = [replica("group-full", ordinal)[1].broker_election_priority for ordinal in range(5)]
    assert priorities == [1, 2, default, default, default]


def test_without_failover_the_ordinal_says_which_replica_is_master() -> None:
    for ordinal, role in enumerate(("SYNC_MASTER", "SLAVE", "SLAVE")):
        for half in replica("group-without-controllers", ordinal):
            assert (half.enable_controller_mode, half.broker_id, half.broker_role) == (False, ordinal, role)
    file = replica_file({"controllerRef": None, "failover": {"mode": "none"}})
    assert "controllerAddr" not in file
    assert "brokerId" not in replica_file({})


@pytest.mark.parametrize("config", [{"inSyncReplicas": "2"}, {"allAckInSyncStateSet": "true"}], ids=str)
def test_without_failover_the_keys_about_copies_count_with_durability_relaxed(config: dict[str, str]) -> None:
    alone: Object = {"controllerRef": None, "failover": {"mode": "none"}}
    file = replica_file({**alone, "durability": "relaxed", "config": config})
    rule = build_settings(SidecarSettings, file).settings.ack_rule
    assert (rule.in_sync_replicas, rule.all_ack_in_sync_state_set) == (
        int(config.get("inSyncReplicas", "1")),
        "allAckInSyncStateSet" in config,
    )


def test_a_slave_acts_for_a_missing_master_if_the_spec_says_so() -> None:
    assert not replica("group")[0].enable_slave_acting_master
    assert replica("group-full")[0].enable_slave_acting_master
    assert "enableSlaveActingMaster" not in replica_file({}), "a group of before the field keeps its pods"
    assert keys_set_by({"actingMaster": "off"}) == {}
    assert keys_set_by({"actingMaster": "reads"}) == {"enableSlaveActingMaster": "true"}
    for mode in ("reads", "readsAndEscape"):
        apache: Object = {"actingMaster": mode, "engine": "apache"}
        assert keys_set_by(apache).items() >= keys_set_by({"actingMaster": mode}).items()
        assert replica_file(apache)["slaveReadEnable"] == "true", "else an official broker is not read while it acts"
        assert replica_file(apache)["timerEnableRetryUntilSuccess"] == "true", (
            "else it drops timer messages that are due"
        )
        own = {"slaveReadEnable": "false", "timerEnableRetryUntilSuccess": "false"}
        assert replica_file({**apache, "config": own}).items() >= own.items()


@pytest.mark.parametrize(
    "name_servers",
    [{}, {"nameServerRef": None, "namesrvAddr": "ns.example.org:9876"}, {"nameServerRef": None}],
    ids=str,
)
def test_delayed_messages_escape_if_the_spec_says_so(name_servers: Object) -> None:
    """The slave that acts finds other groups at the name servers, wherever these are."""
    for mode, escapes in {"off": False, "reads": False, "readsAndEscape": True}.items():
        file = replica_file({**name_servers, "actingMaster": mode})
        assert build_settings(BrokerSettings, file).settings.escapes is escapes
    escape = keys_set_by({"actingMaster": "readsAndEscape"})
    assert escape == {"enableSlaveActingMaster": "true", "enableRemoteEscape": "true"}


def test_name_servers_show_acting_masters_unless_told_not_to() -> None:
    configs: list[tuple[Object, bool]] = [({}, True), ({"supportActingMaster": "false"}, False)]
    for config, shown in configs:
        server = cases.name_server_objects_of(cases.name_server({"config": config}))
        cluster = cases.cluster_objects(cases.cluster({"embeddedInNameServer": True, "config": config}))
        for objects, name in ((server, "namesrv.conf"), (cluster, "controller.conf")):
            file = properties.parse(cases.one(objects, "ConfigMap")["data"][name].encode())
            loaded = build_settings(NameServerSettings, file, {}).settings
            assert loaded.support_acting_master is shown
            assert loaded.notify_min_broker_id_changed
    alone = cases.cluster_objects(cases.cluster(cases.CONTROLLERS["controllers"]))
    assert "supportActingMaster" not in cases.one(alone, "ConfigMap")["data"]["controller.conf"]


def test_the_size_of_log_files_is_fixed_unless_the_user_fixed_another() -> None:
    broker, _ = replica("group")
    assert broker.mapped_file_size_commit_log == COMMIT_LOG_FILE_SIZE == 256 * 1024 * 1024
    spec = {**cases.GROUPS["group"], "config": {"mappedFileSizeCommitLog": "67108864"}}
    objects = cases.group_objects(cases.group(spec))
    assert "mappedFileSizeCommitLog=67108864\n" in cases.one(objects, "ConfigMap")["data"]["broker-a-0.conf"]


@pytest.mark.parametrize("acting", ["off", "reads", "readsAndEscape"])
def test_the_sidecar_of_an_official_broker_observes_it(acting: str) -> None:
    objects = cases.group_objects(cases.group({**cases.GROUPS["group-apache"], "actingMaster": acting}))
    sidecar = cases.container(objects, "sidecar")
    variables = cases.environment(sidecar, pod="broker-a-2")
    file = cases.config_file(objects, sidecar, variables)
    loaded = build_settings(SidecarSettings, file, from_environment(SidecarSettings, variables))
    assert set(loaded.unknown_keys) <= OF_THE_BROKER
    assert loaded.settings.broker_engine == "apache"
    assert str(loaded.settings.java_identity_file) == file["storePathBrokerIdentity"] == "/data/store/brokerIdentity"
    assert str(loaded.settings.epoch_file) == file["storePathEpochFile"]


def test_an_official_broker_without_a_role_has_no_id_that_others_take_for_a_masters() -> None:
    """Java's default is 0: it would take the place of the slave that acts."""
    objects = cases.group_objects(cases.group(cases.GROUPS["group-apache"]))
    broker = cases.container(objects, "broker")
    for ordinal in range(3):
        file = cases.config_file(objects, broker, cases.environment(broker, pod=f"broker-a-{ordinal}"))
        assert file["brokerId"] == str(1_000_000 + ordinal)
    assert "brokerId" not in replica_file({}), "native replicas have none without a role"


def test_strict_is_translated_for_an_official_broker() -> None:
    """The gate is minInSyncReplicas, the copies are those of the whole set with allAckInSyncStateSet
    (rocketmq-all-5.3.3: CommitLog.java)."""
    objects = cases.group_objects(cases.group(cases.GROUPS["group-apache"]))
    broker = cases.container(objects, "broker")
    file = cases.config_file(objects, broker, cases.environment(broker, pod="broker-a-0"))
    assert file["enableControllerMode"] == "true"
    assert (file["allAckInSyncStateSet"], file["minInSyncReplicas"]) == ("true", "2")
    assert "brokerIP1" not in file  # its start script adds it: Java reads no environment
    assert "brokerRole" not in file


@pytest.mark.parametrize("ordinal", [0, 2])
def test_a_controller_takes_its_file(ordinal: int) -> None:
    objects = cases.cluster_objects(cases.cluster(cases.CONTROLLERS["controllers"]))
    container = cases.container(objects, "controller")
    variables = cases.environment(container, pod=f"main-controller-{ordinal}")
    loaded = build_settings(
        ControllerSettings,
        cases.config_file(objects, container, variables),
        from_environment(ControllerSettings, variables),
    )
    assert loaded.unknown_keys == ()
    settings = loaded.settings
    assert settings.self_peer.host == f"main-controller-{ordinal}.main-controller.shop.svc"
    assert (settings.self_peer.port, settings.raft_port, settings.grpc_port) == (
        names.PORT_CONTROLLER,
        names.PORT_CONTROLLER_RAFT,
        names.PORT_CONTROLLER_GRPC,
    )
    folder, _, key = settings.controller_raft_secret_file.rpartition("/")
    assert key in cases.one(objects, "Secret")["data"]
    assert folder in {mount["mountPath"] for mount in container["volumeMounts"]}


def test_an_embedded_controller_and_its_name_server_take_theirs() -> None:
    objects = cases.cluster_objects(cases.cluster(cases.CONTROLLERS["controllers-full"]))
    container = cases.container(objects, "controller")
    variables = cases.environment(container, pod="main-controller-4")
    file = cases.config_file(objects, container, variables)
    loaded = build_settings(NameServerSettings, file, from_environment(NameServerSettings, variables))
    assert set(loaded.unknown_keys) <= keys(ControllerKeys)
    assert loaded.settings.enable_controller_in_namesrv
    assert loaded.settings.support_acting_master
    assert loaded.settings.listen_port == names.PORT_NAMESRV
    assert loaded.settings.metrics_prom_exporter_port == names.PORT_NAMESRV_METRICS
    controller = controller_config(file, variables).settings
    assert (controller.self_peer.id, len(controller.peers)) == ("n4", 5)
    assert controller.elect_master_max_retry_count == 5
    assert controller.raft_election_timeout_ms == 1000
    assert controller.enable_elect_unclean_master
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    for path in (controller.controller_grpc_tls_cert_file, controller.controller_grpc_tls_ca_file):
        assert path.rpartition("/")[0] in mounted


@pytest.mark.parametrize("name", cases.NAME_SERVERS)
def test_a_name_server_takes_its_file(name: str) -> None:
    objects = cases.name_server_objects_of(cases.name_server(cases.NAME_SERVERS[name]))
    container = cases.container(objects, "namesrv")
    variables = cases.environment(container, pod="main-namesrv-0")
    loaded = build_settings(
        NameServerSettings,
        cases.config_file(objects, container, variables),
        from_environment(NameServerSettings, variables),
    )
    assert loaded.unknown_keys == ()
    assert loaded.settings.kv_path.parent.as_posix() in {mount["mountPath"] for mount in container["volumeMounts"]}
    assert loaded.settings.update_path.parent == loaded.settings.kv_path.parent


def test_what_we_set_users_may_not() -> None:
    """Every key that we write is refused in spec.config, except the one that may be fixed at creation, one that
    spec.config may set with durability: relaxed, where we do not, and what spec.config may switch off."""
    bare = cases.group_objects(cases.group(cases.GROUPS["group"] | {"priorities": [1]}))
    ours = keys_of(bare, "broker-a-0.conf")
    apache = cases.group_objects(cases.group(cases.GROUPS["group-apache"]))
    ours |= keys_of(apache, "broker-a-0.conf")
    assert ours - reserved_keys.BROKER.keys() - reserved_keys.BROKER_CREATION_ONLY == {"allAckInSyncStateSet"}
    relaxed = cases.group_objects(cases.group({**cases.GROUPS["group-apache"], "durability": "relaxed"}))
    assert "allAckInSyncStateSet" not in keys_of(relaxed, "broker-a-0.conf")
    embedded = {**cases.CONTROLLERS["controllers-full"], "config": {}}
    ours = keys_of(cases.cluster_objects(cases.cluster(embedded)), "controller.conf")
    assert ours - reserved_keys.CONTROLLER.keys() == NAME_SERVER_DEFAULTS.keys()
    ours = keys_of(cases.name_server_objects_of(cases.name_server({})), "namesrv.conf")
    assert ours - reserved_keys.NAME_SERVER.keys() == NAME_SERVER_DEFAULTS.keys()


def keys_of(objects: list[Object], file: str) -> set[str]:
    return set(properties.parse(cases.one(objects, "ConfigMap")["data"][file].encode()))


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


@given(st.dictionaries(TEXT, TEXT))
def test_whatever_users_write_arrives(values: dict[str, str]) -> None:
    text = properties_text(values)
    assert text.isascii()
    assert properties.parse(text.encode()) == values
    assert properties_text(dict(reversed(values.items()))) == text


def test_later_layers_win_and_booleans_are_javas() -> None:
    assert properties_text({"a": "1", "c": True}, {"a": 2, "b": False}) == "a=2\nb=false\nc=true\n"
