"""JSON keys are a promise (docs/rocketmq-admin.md); each document is one line."""

import json

import pytest

from rocketmq_admin import output
from rocketmq_admin.brokers import BrokerEpochs
from rocketmq_admin.controllers import ConfigUpdated, ControllerConfig, Elected
from rocketmq_admin.errors import ClusterRefusedError, refusal
from rocketmq_formats.remoting.controller import (
    ElectMasterResponseHeader,
    EpochEntry,
    GetMetaDataResponseHeader,
    InSyncReplica,
    ReplicasInfo,
)
from rocketmq_runtime.terminal import one_line, to_json

REPLICA = InSyncReplica(alive=True, broker_address="h:1", broker_id=1, broker_name="b")
INFO = ReplicasInfo(in_sync_replicas=[REPLICA], not_in_sync_replicas=[], master_epoch=2, sync_state_set_epoch=3)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            output.sync_state_sets_document({"b": INFO}),
            {
                "brokerSets": [
                    {
                        "brokerName": "b",
                        "masterBrokerId": None,
                        "masterAddress": None,
                        "masterEpoch": 2,
                        "syncStateSetEpoch": 3,
                        "inSyncReplicas": [{"brokerId": 1, "brokerAddress": "h:1", "alive": True}],
                        "notInSyncReplicas": [],
                    }
                ]
            },
        ),
        (
            output.broker_epochs_document(
                [BrokerEpochs("h:1", "c", "b", 0, 9, (EpochEntry(epoch=1, start_offset=0),))]
            ),
            {
                "brokers": [
                    {
                        "clusterName": "c",
                        "brokerName": "b",
                        "brokerId": 0,
                        "brokerAddress": "h:1",
                        "maxOffset": 9,
                        "epochs": [{"epoch": 1, "startOffset": 0, "endOffset": 2**63 - 1}],
                    }
                ]
            },
        ),
        (
            output.elected_document(
                Elected("c", "b", ElectMasterResponseHeader(master_broker_id=2), {3: "h:3", 2: "h:2"}, (2,))
            ),
            {
                "clusterName": "c",
                "brokerName": "b",
                "masterBrokerId": 2,
                "masterAddress": None,
                "masterEpoch": None,
                "syncStateSetEpoch": None,
                "syncStateSet": [2],
                "brokers": [{"brokerId": 2, "brokerAddress": "h:2"}, {"brokerId": 3, "brokerAddress": "h:3"}],
            },
        ),
        (
            output.metadata_document(
                GetMetaDataResponseHeader(group="g", controller_leader_id="n0", peers="n0:h:1;h:2;[::1]:3;")
            ),
            {
                "group": "g",
                "controllerLeaderId": "n0",
                "controllerLeaderAddress": None,
                "peers": [
                    {"id": "n0", "address": "h:1"},
                    {"id": None, "address": "h:2"},
                    {"id": None, "address": "[::1]:3"},
                ],
            },
        ),
        (
            output.cleaned_document("c", "b", [2, 3]),
            {"clusterName": "c", "brokerName": "b", "brokerIds": [2, 3], "cleaned": True},
        ),
        (
            output.cleaned_document(None, "b", []),
            {"clusterName": None, "brokerName": "b", "brokerIds": None, "cleaned": True},
        ),
        (
            output.configs_document([ControllerConfig("h:1", {"b": "2", "a": ""})]),
            {"controllers": [{"address": "h:1", "config": {"a": "", "b": "2"}}]},
        ),
        (
            output.updated_document(
                "k", "v", [ConfigUpdated("h:1", None), ConfigUpdated("h:2", ClusterRefusedError("no\n"))]
            ),
            {
                "key": "k",
                "value": "v",
                "controllers": [
                    {"address": "h:1", "updated": True, "error": None},
                    {"address": "h:2", "updated": False, "error": "no"},
                ],
            },
        ),
    ],
)
def test_documents(document: output.Document, expected: object) -> None:
    line = to_json(document)
    assert line.count("\n") == 1
    assert json.loads(line) == expected


def test_tables_of_what_is_missing() -> None:
    """Java prints null; a controller without a leader answers nothing else."""
    assert output.metadata_table(GetMetaDataResponseHeader(group="g")) == (
        "\n#ControllerGroup\tg\n#ControllerLeaderId\tnull\n#ControllerLeaderAddress\tnull\n"
    )
    assert output.updated_table("k", "v", [ConfigUpdated("h:1", ClusterRefusedError("no"))]) == ""


def test_update_table_names_those_that_hold_the_value() -> None:
    results = [ConfigUpdated("h:1", None), ConfigUpdated("h:2", ClusterRefusedError("no")), ConfigUpdated("h:3", None)]
    assert output.updated_table("k", "v", results) == "update controller config success![h:1, h:3]\nk : v\n"


def test_text_of_controllers_does_not_control_the_terminal() -> None:
    """Anybody who reaches a controller can register addresses; lines that look like ours cannot be made with them."""
    evil = "h:1\x1b]0;owned\x07\x9b31m\n#MasterEpoch\t99\r"
    replica = InSyncReplica(alive=True, broker_address=evil, broker_id=1, broker_name=evil)
    info = ReplicasInfo(
        in_sync_replicas=[replica],
        not_in_sync_replicas=[replica],
        master_address=evil,
        master_epoch=2,
        sync_state_set_epoch=3,
    )
    metadata = GetMetaDataResponseHeader(
        group=evil, controller_leader_id=evil, controller_leader_address=evil, peers=evil
    )
    tables = (
        output.sync_state_sets_table({evil: info}),
        output.broker_epochs_table([BrokerEpochs(evil, evil, evil, 0, 9, ())]),
        output.elected_table(Elected(evil, evil, ElectMasterResponseHeader(master_address=evil), {}, ())),
        output.metadata_table(metadata),
        output.configs_table([ControllerConfig("h:1", {evil: evil})]),
    )
    for table in tables:
        assert all(char.isprintable() or char in "\n\t" for char in table)
        assert "\n#MasterEpoch\t99" not in table
    assert to_json(output.sync_state_sets_document({evil: info})).strip().isprintable()


def test_errors_are_one_harmless_line() -> None:
    assert one_line("a\nb\x1b[31m\tc") == "a b?[31m?c"
    assert len(one_line("x" * 10_000)) == 2000


def test_codes_without_a_name_are_shown_too() -> None:
    assert str(refusal("h:1", 2012, None)) == "h:1 refused: CONTROLLER_ELECT_MASTER_FAILED: CODE: 2012  DESC:"
    assert str(refusal("h:1", 9999, "what")) == "h:1 refused: unknown code: CODE: 9999  DESC: what"
