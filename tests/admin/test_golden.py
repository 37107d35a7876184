"""Standard output is mqadmin's, byte for byte; where Java's hash tables give the order, the parts are the same."""

import re

import pytest

from rocketmq_formats.remoting.controller import (
    BrokerReplicasInfo,
    ElectMasterResponseHeader,
    EpochEntry,
    EpochEntryCache,
    InSyncReplica,
    ReplicasInfo,
)
from tests.admin.fake_cluster import BROKERS, N0, N1, NAME_SERVER, FakeCluster, answer, recorded
from tests.command_lines import Tool
from tests.paths import GOLDEN_FILES


def golden(name: str) -> str:
    return (GOLDEN_FILES / "mqadmin" / f"{name}.txt").read_text()


def replica(broker_id: int, *, alive: bool = True) -> InSyncReplica:
    return InSyncReplica(alive=alive, broker_address=BROKERS[broker_id], broker_id=broker_id, broker_name="broker-a")


def state(
    master: int | None, epochs: tuple[int, int], in_sync: list[InSyncReplica], others: list[InSyncReplica]
) -> BrokerReplicasInfo:
    info = ReplicasInfo(
        in_sync_replicas=in_sync,
        not_in_sync_replicas=others,
        master_broker_id=master,
        master_address=None if master is None else BROKERS[master],
        master_epoch=epochs[0],
        sync_state_set_epoch=epochs[1],
    )
    return BrokerReplicasInfo(replicas_info_table={"broker-a": info})


def test_get_controller_meta_data(cluster: FakeCluster, admin: Tool) -> None:
    outcome = admin("getControllerMetaData", "-a", N0)
    assert (outcome.code, outcome.out, outcome.err) == (0, golden("getControllerMetaData"), "")


@pytest.mark.parametrize("asked", [N0, N1])
def test_get_sync_state_set_of_a_broker_group(cluster: FakeCluster, admin: Tool, asked: str) -> None:
    cluster.processes[N1].scripts[1006] = recorded("1006-get-sync-state-data-response")
    outcome = admin("getSyncStateSet", "-a", asked, "-b", "broker-a")
    assert (outcome.code, outcome.out, outcome.err) == (0, golden("getSyncStateSet-b"), "")
    assert cluster.processes[N1].requests[-1].body == recorded("1006-get-sync-state-data-request").body


def test_get_sync_state_set_of_a_cluster(cluster: FakeCluster, admin: Tool) -> None:
    cluster.processes[N1].scripts[1006] = recorded("1006-get-sync-state-data-response")
    outcome = admin("getSyncStateSet", "-a", N1, "-n", NAME_SERVER, "-c", "DefaultCluster")
    assert (outcome.code, outcome.out, outcome.err) == (0, golden("getSyncStateSet-c"), "")


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("one-dead", state(2, (2, 5), [replica(1), replica(2)], [replica(3, alive=False)])),
        ("cleaned", state(2, (2, 5), [replica(2), replica(1)], [])),
        ("failed-over", state(1, (3, 6), [replica(1)], [replica(2, alive=False)])),
        ("no-master", state(None, (7, 6), [replica(1, alive=False)], [replica(2, alive=False)])),
    ],
)
def test_get_sync_state_set_in_trouble(cluster: FakeCluster, admin: Tool, name: str, body: BrokerReplicasInfo) -> None:
    cluster.processes[N1].scripts[1006] = answer(body=body)
    outcome = admin("getSyncStateSet", "-a", N1, "-b", "broker-a")
    assert (outcome.code, outcome.out, outcome.err) == (0, golden(f"getSyncStateSet-{name}"), "")


def test_get_sync_state_set_of_an_unknown_broker(cluster: FakeCluster, admin: Tool) -> None:
    cluster.processes[N1].scripts[1006] = answer(body=BrokerReplicasInfo(replicas_info_table={}))
    outcome = admin("getSyncStateSet", "-a", N1, "-b", "nobody")
    assert outcome.out == golden("getSyncStateSet-unknown")
    # mqadmin says nothing and success
    assert (outcome.code, outcome.err) == (1, "rocketmq-admin: the controller has no broker group nobody\n")


def epochs_of(broker_id: int, epochs: list[EpochEntry]) -> EpochEntryCache:
    return EpochEntryCache(
        broker_id=broker_id, broker_name="broker-a", cluster_name="DefaultCluster", epoch_list=epochs, max_offset=69575
    )


def blocks(text: str) -> list[str]:
    return sorted(text.split("\n\n"))


@pytest.mark.parametrize("target", [("-b", "broker-a"), ("-c", "DefaultCluster")])
def test_get_broker_epoch(cluster: FakeCluster, admin: Tool, target: tuple[str, str]) -> None:
    for broker_id, outward_id in ((1, 0), (2, 2)):
        body = epochs_of(outward_id, [EpochEntry(epoch=1, start_offset=0)])
        cluster.processes[BROKERS[broker_id]].scripts[1007] = answer(body=body)
    cluster.processes[BROKERS[3]].scripts[1007] = recorded("1007-get-broker-epoch-cache-response")
    outcome = admin("getBrokerEpoch", "-n", NAME_SERVER, *target)
    expected = golden(f"getBrokerEpoch-{target[0][1:]}")
    assert blocks("\n" + outcome.out + "\n") == blocks("\n" + expected + "\n")
    assert (outcome.code, outcome.err) == (0, "")


def test_get_broker_epoch_after_a_failover(cluster: FakeCluster, admin: Tool) -> None:
    table = {"brokerAddrTable": {"broker-a": {"brokerName": "broker-a", "brokerAddrs": {0: BROKERS[1]}}}}
    cluster.processes[NAME_SERVER].scripts[106] = answer(body=table)
    epochs = [EpochEntry(epoch=1, start_offset=0, end_offset=69575), EpochEntry(epoch=2, start_offset=69575)]
    cluster.processes[BROKERS[1]].scripts[1007] = answer(body=epochs_of(0, epochs))
    outcome = admin("getBrokerEpoch", "-n", NAME_SERVER, "-b", "broker-a")
    assert (outcome.code, outcome.out, outcome.err) == (0, golden("getBrokerEpoch-failed-over"), "")


ELECT = ("electMaster", "-a", N1, "-n", NAME_SERVER, "-c", "DefaultCluster", "-bn", "broker-a", "-b")
CLEAN = ("cleanBrokerMetadata", "-a", N1, "-c", "DefaultCluster", "-bn")


def test_elect_master(cluster: FakeCluster, admin: Tool) -> None:
    header = ElectMasterResponseHeader(
        master_broker_id=2, master_address=BROKERS[2], master_epoch=2, sync_state_set_epoch=4
    )
    body = recorded("1002-elect-master-response").body
    cluster.processes[N1].scripts[1002] = answer(header=header, body=body)
    outcome = admin(*ELECT, "2")
    assert (outcome.code, outcome.out, outcome.err) == (0, golden("electMaster"), "")
    fields = cluster.processes[N1].requests[-1].ext_fields or {}
    assert fields.pop("invokeTime").isdecimal()
    assert fields == {
        "brokerId": "2",
        "brokerName": "broker-a",
        "clusterName": "DefaultCluster",
        "designateElect": "true",
    }


@pytest.mark.parametrize(
    ("arguments", "file"),
    [((*CLEAN, "broker-a", "-b", "3"), "cleanBrokerMetadata"), ((*CLEAN, "broker-a"), "cleanBrokerMetadata-all")],
)
@pytest.mark.parametrize("extra", [(), ("-l",)])
def test_clean_broker_metadata(
    cluster: FakeCluster, admin: Tool, arguments: tuple[str, ...], file: str, extra: tuple[str, ...]
) -> None:
    cluster.processes[N1].scripts[1011] = recorded("1011-clean-broker-data-response")
    outcome = admin(*arguments, *extra)
    assert (outcome.code, outcome.out, outcome.err) == (0, golden(file), "")
    fields = cluster.processes[N1].requests[-1].ext_fields or {}
    assert fields.get("brokerControllerIdsToClean") == ("3" if "3" in arguments else None)
    assert fields["isCleanLivingBroker"] == ("true" if extra else "false")


@pytest.mark.parametrize(
    ("arguments", "sample", "file"),
    [
        ((*ELECT, "2"), "1002-elect-master-response-2011", "electMaster-is-master"),
        ((*ELECT, "9"), "1002-elect-master-response-2012", "electMaster-unknown-id"),
        ((*ELECT, "1"), "1002-elect-master-response-2012", "electMaster-nobody-alive"),
        ((*CLEAN, "broker-a", "-b", "3"), "1011-clean-broker-data-response-2009", "cleanBrokerMetadata-alive"),
        ((*CLEAN, "nobody", "-b", "1"), "1011-clean-broker-data-response-2009-2", "cleanBrokerMetadata-unknown"),
        (
            ("updateControllerConfig", "-a", N1, "-k", "configStorePath", "-v", "/tmp/x"),
            "1009-update-controller-config-response-16",
            "updateControllerConfig-black-list",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refusals_have_mqadmins_text_in_one_line(
    cluster: FakeCluster, admin: Tool, arguments: tuple[str, ...], sample: str, file: str
) -> None:
    cluster.processes[N1].scripts[int(sample[:4])] = recorded(sample)
    outcome = admin(*arguments)
    said = re.search(r"CODE: .*", golden(f"{file}.stderr"))
    assert said is not None
    assert (outcome.code, outcome.out) == (1, golden(file))
    assert outcome.err.startswith(f"rocketmq-admin: {N1} refused: ")
    assert said[0] in outcome.err
    assert outcome.err.count("\n") == 1


def test_get_controller_config(cluster: FakeCluster, admin: Tool) -> None:
    cluster.processes[N1].scripts[1010] = recorded("1010-get-controller-config-response")
    outcome = admin("getControllerConfig", "-a", N1)
    expected = golden("getControllerConfig").splitlines()
    at = expected.index(f"============{N1}============")
    printed = outcome.out.splitlines()
    assert printed[0] == expected[at]
    assert sorted(printed) == sorted(expected[at:])
    assert printed[1:] == sorted(printed[1:])
    assert (outcome.code, outcome.err) == (0, "")


def test_update_controller_config(cluster: FakeCluster, admin: Tool) -> None:
    cluster.processes[N1].scripts[1009] = recorded("1009-update-controller-config-response")
    cluster.processes[N1].scripts[1010] = answer(body=b"electMasterMaxRetryCount=4\n")
    outcome = admin("updateControllerConfig", "-a", N1, "-k", "electMasterMaxRetryCount", "-v", "4")
    assert (outcome.code, outcome.out, outcome.err) == (0, golden("updateControllerConfig"), "")
    assert cluster.processes[N1].requests[0].body == recorded("1009-update-controller-config-request").body
