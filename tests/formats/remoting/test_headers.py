"""Typed headers: how strings become fields, what is refused, and which Java habits are matched or not."""

import pytest

from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.errors import HeaderError
from rocketmq_formats.remoting.controller import (
    MAX_ELECTION_PRIORITY,
    NO_BROKER_ID,
    AlterSyncStateSetRequestHeader,
    BrokerHeartbeatRequestHeader,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
)
from rocketmq_formats.remoting.headers import decode_header, encode_header

ALTER = {"brokerName": "broker-a", "masterBrokerId": "1", "masterEpoch": "3", "invokeTime": "5"}
HEARTBEAT = {"clusterName": "c", "brokerAddr": "127.0.0.1:10911", "brokerName": "broker-a"}


def test_wire_keys_are_javas_field_names() -> None:
    header = AlterSyncStateSetRequestHeader(broker_name="broker-a", master_broker_id=1, master_epoch=3, invoke_time=5)
    assert encode_header(header) == ALTER
    assert decode_header(AlterSyncStateSetRequestHeader, ALTER) == header


def test_java_boolean_fields_keep_their_is_prefix() -> None:
    assert encode_header(GetMetaDataResponseHeader(is_leader=True)) == {"isLeader": "true", "peers": ""}
    assert encode_header(CleanControllerBrokerDataRequestHeader(broker_name="a"))["isCleanLivingBroker"] == "false"


def test_none_is_left_out_and_absence_is_none() -> None:
    assert encode_header(ElectMasterResponseHeader()) == {}
    assert decode_header(ElectMasterResponseHeader, {}) == ElectMasterResponseHeader()
    assert decode_header(BrokerHeartbeatRequestHeader, HEARTBEAT).election_priority is None


def test_absent_fields_of_an_election_take_javas_defaults() -> None:
    header = decode_header(ElectMasterRequestHeader, {"brokerName": "a"})
    assert header == ElectMasterRequestHeader(
        broker_name="a", cluster_name="", broker_id=NO_BROKER_ID, designate_elect=False, invoke_time=0
    )


def test_unknown_keys_are_ignored() -> None:
    assert decode_header(GetReplicaInfoRequestHeader, {"brokerName": "a", "broker_name": "b", "oway": "true", "": ""})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("TRUE", True),
        ("tRuE", True),
        ("false", False),
        ("1", False),
        ("yes", False),
        ("", False),
        (" true", False),
    ],
)
def test_booleans_are_read_by_javas_rule(text: str, value: bool) -> None:
    fields = {"brokerName": "a", "designateElect": text}
    assert decode_header(ElectMasterRequestHeader, fields).designate_elect is value
    assert fields["designateElect"] == text


@pytest.mark.parametrize("missing", ["clusterName", "brokerAddr", "brokerName"])
def test_a_missing_field_is_named(missing: str) -> None:
    fields = {key: value for key, value in HEARTBEAT.items() if key != missing}
    with pytest.raises(HeaderError, match=f"BrokerHeartbeatRequestHeader: .*`{missing}`") as refusal:
        decode_header(BrokerHeartbeatRequestHeader, fields)
    assert refusal.value.response_code is ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    "text", ["", "x", "1x", " 1", "1 ", "+1", "0x1", "1.5", "true", "null", "٣", "1_0", "9" * 100_000]
)
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(HeaderError, match="masterEpoch"):
        decode_header(AlterSyncStateSetRequestHeader, {**ALTER, "masterEpoch": text})


INT32, INT64 = 2**31, 2**63


@pytest.mark.parametrize("value", [-INT32, -1, 0, INT32 - 1])
def test_epochs_span_an_int(value: int) -> None:
    assert decode_header(AlterSyncStateSetRequestHeader, {**ALTER, "masterEpoch": str(value)}).master_epoch == value


@pytest.mark.parametrize("value", [-INT32 - 1, INT32, INT64, 10**30])
def test_epochs_beyond_an_int_are_refused(value: int) -> None:
    with pytest.raises(HeaderError):
        decode_header(AlterSyncStateSetRequestHeader, {**ALTER, "masterEpoch": str(value)})


@pytest.mark.parametrize("value", [-INT64, INT64 - 1])
def test_ids_span_a_long(value: int) -> None:
    fields = {**ALTER, "masterBrokerId": str(value)}
    assert decode_header(AlterSyncStateSetRequestHeader, fields).master_broker_id == value


@pytest.mark.parametrize("value", [-INT64 - 1, INT64, 10**30])
def test_ids_beyond_a_long_are_refused(value: int) -> None:
    with pytest.raises(HeaderError):
        decode_header(AlterSyncStateSetRequestHeader, {**ALTER, "masterBrokerId": str(value)})


def test_the_default_priority_is_javas_largest_int() -> None:
    fields = {**HEARTBEAT, "electionPriority": str(MAX_ELECTION_PRIORITY)}
    assert decode_header(BrokerHeartbeatRequestHeader, fields).election_priority == 2**31 - 1


@pytest.mark.parametrize("name", ["", "x" * 256, "x" * 10_000])
def test_names_have_a_length(name: str) -> None:
    with pytest.raises(HeaderError, match="brokerName"):
        decode_header(GetReplicaInfoRequestHeader, {"brokerName": name})


@pytest.mark.parametrize("name", ["a", "x" * 255, "broker#a", "DefaultCluster@broker", "经纪人", " ", "a\nb"])
def test_a_name_may_hold_any_character_here(name: str) -> None:
    assert decode_header(GetReplicaInfoRequestHeader, {"brokerName": name}).broker_name == name


def test_a_refusal_does_not_repeat_the_value() -> None:
    with pytest.raises(HeaderError) as refusal:
        decode_header(GetReplicaInfoRequestHeader, {"brokerName": "x" * 10_000})
    assert len(str(refusal.value)) < 200


def test_a_number_that_java_would_write_is_written() -> None:
    assert encode_header(GetNextBrokerIdResponseHeader(next_broker_id=-INT64)) == {
        "nextBrokerId": "-9223372036854775808"
    }
