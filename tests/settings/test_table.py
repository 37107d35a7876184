"""Every key is declared once, with what everybody who reads the table needs."""

from typing import Annotated

import msgspec
import pytest

from rocketmq_broker.settings import BrokerSettings
from rocketmq_controller.settings import ControllerSettings
from rocketmq_namesrv.settings import NameServerSettings
from rocketmq_operator.settings import OperatorSettings
from rocketmq_settings.broker import BrokerKeys
from rocketmq_settings.controller import ControllerKeys
from rocketmq_settings.declare import Settings, key
from rocketmq_settings.name_server import NameServerKeys
from rocketmq_settings.operator import PREFIXES, OperatorKeys
from rocketmq_settings.replica import JAVA_SWITCHES, ReplicaKeys
from rocketmq_settings.sidecar import SidecarKeys
from rocketmq_settings.table import (
    OF_THE_BROKER,
    OF_THE_SIDECAR,
    creation_only,
    group_wide,
    keys,
    rows,
    set_elsewhere,
    without_effect,
)
from rocketmq_settings.verify import VerifyKeys
from rocketmq_sidecar.settings import SidecarSettings
from rocketmq_verify.settings import VerifySettings


@pytest.mark.parametrize(
    ("settings", "declared"),
    [
        (BrokerSettings, BrokerKeys),
        (SidecarSettings, SidecarKeys),
        (ControllerSettings, ControllerKeys),
        (NameServerSettings, NameServerKeys),
        (VerifySettings, VerifyKeys),
        (OperatorSettings, OperatorKeys),
    ],
)
def test_a_process_has_no_keys_of_its_own(settings: type[Settings], declared: type[Settings]) -> None:
    assert rows(settings) == rows(declared)


def test_a_key_without_meaning_is_refused() -> None:
    class Bare(Settings, frozen=True):
        """One key."""

        some_key: int = 3

    with pytest.raises(TypeError, match="someKey"):
        rows(Bare)


def test_a_row_has_what_was_declared() -> None:
    class One(Settings, frozen=True):
        """One key."""

        some_key: Annotated[int, key("What it means.", default="in words", set_by="spec.x", change="at once")] = 0

    (row,) = rows(One)
    assert (row.key, row.value, row.meaning) == ("someKey", 0, "What it means.")
    assert (row.default, row.set_by, row.change) == ("in words", "spec.x", "at once")
    assert set_elsewhere(One) == {"someKey": "spec.x"}


def test_each_half_of_a_replica_knows_the_keys_of_the_other() -> None:
    shared = keys(ReplicaKeys)
    assert keys(BrokerKeys) & keys(SidecarKeys) == shared
    other_names = {"controllerAddress", "isAsyncLearner", "haMaxTimeSlaveNotCatchUp"}
    assert keys(SidecarKeys) - shared | JAVA_SWITCHES | other_names == OF_THE_SIDECAR
    assert keys(BrokerKeys) - shared | JAVA_SWITCHES == OF_THE_BROKER


@pytest.mark.parametrize(
    ("spec", "text", "says"),
    [
        (SidecarKeys, {"controllerDeployedStandAlone": "true"}, "controllerAddr names"),
        (SidecarKeys, {"fetchControllerAddrByDnsLookup": "true"}, "Write a name into controllerAddr"),
        (SidecarKeys, {"syncControllerMetadataPeriod": "5000"}, "looked for as soon as"),
        (SidecarKeys, {"haMaxGapNotInSync": "1"}, "haMaxTimeSlaveNotCatchup decides"),
        (BrokerKeys, {"transientStorePoolEnable": "true"}, "mapped files"),
        (BrokerKeys, {"transientStorePoolSize": "8"}, "mapped files"),
    ],
)
def test_keys_of_the_design_documents_without_effect_are_explained(
    spec: type[Settings], text: dict[str, str], says: str
) -> None:
    ((key, meaning),) = without_effect(msgspec.convert(text, spec, strict=False)).items()
    assert key in text
    assert says in meaning


def test_nothing_is_explained_about_defaults_or_beside_an_official_broker() -> None:
    assert without_effect(BrokerKeys(transient_store_pool_size=5)) == {}
    official = SidecarSettings(controller_addr="a:1", broker_engine="apache", controller_deployed_stand_alone=True)
    assert without_effect(official) == {}


def test_what_can_never_change() -> None:
    assert creation_only(BrokerKeys, SidecarKeys) == {"mappedFileSizeCommitLog"}


def test_what_a_group_promises_is_the_same_on_all_replicas() -> None:
    assert group_wide(ReplicaKeys) == {
        "enableControllerMode",
        "mappedFileSizeCommitLog",
        "flushDiskType",
        "durability",
        "allAckInSyncStateSet",
        "inSyncReplicas",
        "minInSyncReplicas",
    }
    assert group_wide(BrokerKeys) - group_wide(ReplicaKeys) == {
        "brokerTopicEnable",
        "clusterTopicEnable",
        "msgTraceTopicName",
        "traceTopicEnable",
        "enableSlaveActingMaster",
        "enableRemoteEscape",
        "autoCreateTopicEnable",
        "autoCreateSubscriptionGroup",
        "allowLongGroupNames",
        "skipPreOnline",
        "messageDelayLevel",
        "maxMessageSize",
        "fileReservedTime",
        "lockInStrictMode",
    }
    assert group_wide(SidecarKeys) - group_wide(ReplicaKeys) == {
        "haMaxTimeSlaveNotCatchup",
        "haReplicationSecretRequired",
        "enableAutoInSyncReplicas",
    }


def test_only_some_keys_of_a_controller_are_for_tools() -> None:
    """Port 9878 knows no passwords."""
    changed = {row.key: row.change for row in rows(ControllerKeys) if row.change}
    assert not {"controllerRaftSecretFile", "controllerDLegerPeers", "controllerStorePath", "maxConnections"} & set(
        changed
    )
    assert changed["brokerSuspectTimeoutMs"] == "at once"
    assert changed["logFormat"] == "next start"


def test_the_operator_s_keys_are_variables() -> None:
    assert all(row.key.startswith(PREFIXES) for row in rows(OperatorKeys))
    workers = next(row for row in rows(OperatorKeys) if row.key == "OPERATOR_WORKERS")
    assert (workers.value, workers.least, workers.most) == (8, 1, 64)
