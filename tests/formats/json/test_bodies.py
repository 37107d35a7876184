"""Bodies: the bytes Java readers need, and the bytes Java writers send that no strict JSON reader takes."""

import pytest

from rocketmq_formats.errors import BodyError
from rocketmq_formats.json import fastjson
from rocketmq_formats.json.bodies import (
    BARE_KEYS_LIMIT,
    LOOSE_LIMIT,
    REQUEST_LIMIT,
    decode_body,
    decode_request_body,
    encode_body,
)
from rocketmq_formats.json.fastjson import MAX_KEYS
from rocketmq_formats.remoting.controller import (
    BrokerMemberGroup,
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    EpochEntry,
    EpochEntryCache,
    InSyncReplica,
    ReplicasInfo,
    SyncStateSet,
)
from rocketmq_formats.remoting.nameserver import BrokerData, ClusterInfo

GROUP = BrokerMemberGroup(broker_addrs={2: "b:1", 1: "a:1"}, broker_name="n", cluster="c")
REPLICA = InSyncReplica(alive=True, broker_address="a:1", broker_id=1, broker_name="n")


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (SyncStateSet(), b'{"syncStateSet":[],"syncStateSetEpoch":0}'),
        (
            SyncStateSet(sync_state_set=frozenset({30, 2, 1}), sync_state_set_epoch=4),
            b'{"syncStateSet":[1,2,30],"syncStateSetEpoch":4}',
        ),
        (GROUP, b'{"brokerAddrs":{"1":"a:1","2":"b:1"},"brokerName":"n","cluster":"c"}'),
        (ElectMasterResponseBody(), b"{}"),
        (
            ElectMasterResponseBody(broker_member_group=GROUP, sync_state_set=frozenset()),
            b'{"brokerMemberGroup":{"brokerAddrs":{"1":"a:1","2":"b:1"},"brokerName":"n","cluster":"c"},"syncStateSet":[]}',
        ),
        (
            BrokerReplicasInfo(
                replicas_info_table={
                    "n": ReplicasInfo(
                        in_sync_replicas=[REPLICA], not_in_sync_replicas=[], master_epoch=0, sync_state_set_epoch=0
                    )
                }
            ),
            (
                b'{"replicasInfoTable":{"n":{"inSyncReplicas":[{"alive":true,"brokerAddress":"a:1","brokerId":1,"brokerName":"n"}],'
                b'"masterEpoch":0,"notInSyncReplicas":[],"syncStateSetEpoch":0}}}'
            ),
        ),
        (["b", "a"], b'["b","a"]'),
        (
            EpochEntryCache(
                broker_id=1, broker_name="n", cluster_name="c", epoch_list=[EpochEntry(epoch=1, start_offset=0)]
            ),
            (
                b'{"brokerId":1,"brokerName":"n","clusterName":"c","epochList":'
                b'[{"endOffset":9223372036854775807,"epoch":1,"startOffset":0}],"maxOffset":0}'
            ),
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, bytes) else "",
)
def test_bodies_are_written_as_java_writes_them(body: object, data: bytes) -> None:
    assert encode_body(body) == data


def test_unquoted_integer_keys_of_a_typed_body() -> None:
    data = b'{"brokerAddrs":{1:"a:1",2:"b:1"},"brokerName":"n","cluster":"c","unknown":{7:[]}}'
    assert decode_body(BrokerMemberGroup, data) == GROUP


def test_cluster_info_of_a_name_server() -> None:
    data = (
        b'{"brokerAddrTable":{"n":{"brokerAddrs":{0:"a:1"},"brokerName":"n","cluster":"c","enableActingMaster":false}},'
        b'"clusterAddrTable":{"c":["n"]}}'
    )
    assert decode_body(ClusterInfo, data) == ClusterInfo(
        broker_addr_table={"n": BrokerData(broker_name="n", cluster="c", broker_addrs={0: "a:1"})},
        cluster_addr_table={"c": frozenset({"n"})},
    )


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{0:"a"}', {"0": "a"}),
        (b"{-1:1,true:2,null:3,1.5:4}", {"-1": 1, "true": 2, "null": 3, "1.5": 4}),
        (b"{{0:1}:2,{3:4}:5}", {'{"0":1}': 2, '{"3":4}': 5}),
        (b'{{"topic":"t","brokerName":"b"}:{"x":1}}', {'{"brokerName":"b","topic":"t"}': {"x": 1}}),
        (b"[{1:[{2:{}}]},]", [{"1": [{"2": {}}]}]),
        (b'\t{ 0 : "\\u00e9\\n" }\r\n', {"0": "é\n"}),
        (b'{0:{"$ref":"$.x"}}', {"0": {"$ref": "$.x"}}),
        (b"{0:1,0:2}", {"0": 2}),
        (b"{0:-1.5e3}", {"0": -1500.0}),
        (b'/*{*/{0:1,//}\n"a/*":/**/2}// end', {"0": 1, "a/*": 2}),
        (b"""{'a"b':'it\\'s "so"',"c'd":'\\u00e9'}""", {'a"b': 'it\'s "so"', "c'd": "é"}),
    ],
)
def test_what_only_fastjson_writes(data: bytes, value: object) -> None:
    assert fastjson.loads(data) == value


def nested(levels: int) -> bytes:
    return b"{a:" + b"[" * levels + b"]" * levels + b"}"


DAMAGE = {
    "nothing": b"",
    "blank": b" \n",
    "open object": b"{",
    "open list": b"[1",
    "key only": b"{0",
    "no value": b"{0:}",
    "no value at the end": b"{0:",
    "no comma": b"{0:1 1:2}",
    "two commas": b"{0:1,,1:2}",
    "comma first": b"{,0:1}",
    "closed by the wrong bracket": b"{0:[1}}",
    "list as key": b"{[1]:2}",
    "word as value": b"{0:yes}",
    "NaN": b"{0:NaN}",
    "leading zero": b"{0:01}",
    "open string": b'{0:"a',
    "open escape": b'{0:"a\\',
    "unknown escape": b'{0:"\\x41"}',
    "control character in a string": b'{0:"\x01"}',
    "open single quotes": b"{0:'a",
    "one single quote": b"{0:'",
    "no token behind": "{0:1}é".encode(),
    "no token as key": "{é:1}".encode(),
    "no token as value": "{0:é}".encode(),
    "open comment": b"{0:1}/* *",
    "half a comment": b"{0:1}/",
    "a second value": b"{0:1}{0:1}",
    "key in a key": b"{{{0:1}:2}:3}",
    "not UTF-8": b'{0:"\xff"}',
    "BOM": b"\xef\xbb\xbf{0:1}",
    "deeper than read": nested(40),
    "a deep bomb": b"{0:" + b"[" * 1_000_000,
    "a deep bomb of objects": b'{"a":' * 200_000,
    "a deep bomb of keys": b"{" * 1_000_000,
    "backslashes": b'{0:"' + b"\\" * 999_999,
    "an endless number": b"{0:" + b"9" * 1_000_000 + b"}",
}


@pytest.mark.parametrize("data", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_bodies_are_refused(data: bytes) -> None:
    with pytest.raises(BodyError) as refusal:
        decode_body(object, data)
    assert len(str(refusal.value)) < 200


def test_the_depth_that_is_still_read() -> None:
    assert fastjson.loads(nested(fastjson.MAX_DEPTH)) is not None


@pytest.mark.parametrize(
    "data",
    [
        b"null",
        b"[]",
        b"{}x",
        b'{"syncStateSet":[1.5]}',
        b'{"syncStateSet":["x"]}',
        b'{"syncStateSet":[9223372036854775808]}',
        b'{"syncStateSetEpoch":2147483648}',
        b'{"syncStateSetEpoch":"2147483648"}',
        b'{"syncStateSet":["99999999999999999999"]}',
        b'{"syncStateSet":[1],"syncStateSetEpoch":{0:1}}',
    ],
)
def test_json_of_another_shape_is_refused(data: bytes) -> None:
    with pytest.raises(BodyError):
        decode_body(SyncStateSet, data)


def test_the_slow_reader_takes_no_more_than_its_limit() -> None:
    data = b"{a:'" + b"x" * LOOSE_LIMIT + b"'}"
    with pytest.raises(BodyError, match="has to be exact"):
        decode_body(dict[str, str], data)
    assert decode_body(dict[str, str], data, loose_limit=2 * LOOSE_LIMIT) == {"a": "x" * LOOSE_LIMIT}
    with pytest.raises(BodyError, match="more than 20000 tokens"):
        decode_body(dict[str, list[int]], b"{a:[" + b"1," * 10_000 + b"1]}")


def test_bare_integer_keys_are_no_matter_for_the_slow_reader() -> None:
    table = dict.fromkeys(range(MAX_KEYS), "{1:")
    data = b"{" + b",".join(b'%d : "{1:"' % key for key in table) + b"}"
    assert LOOSE_LIMIT < len(data) < BARE_KEYS_LIMIT
    assert decode_body(dict[int, str], data) == table
    with pytest.raises(BodyError):
        decode_body(dict[int, str], data[:-1] + b",30001:0}")
    with pytest.raises(BodyError):
        decode_body(dict[int, str], data[:-1] + b" " * BARE_KEYS_LIMIT + b"}")


def test_requests_have_a_limit() -> None:
    data = b'{"a":"' + b"x" * REQUEST_LIMIT + b'"}'
    assert decode_body(dict[str, str], data)
    with pytest.raises(BodyError, match=f"more than {REQUEST_LIMIT}"):
        decode_request_body(dict[str, str], data)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": {3, 1}, "a": frozenset("yx")}, b'{"a":["x","y"],"b":[1,3]}'),
        ({"b": 1, "a": {10: 1, 9: 2}}, b'{"a":{"10":1,"9":2},"b":1}'),
        ({10: {"b": 1, "a": 2}, 9: {}}, b'{"10":{"a":2,"b":1},"9":{}}'),
        ({"z": 1, "\u00e4": 2, "\U0001f600": 3, "\uffff": 4}, '{"z":1,"\u00e4":2,"\uffff":4,"\U0001f600":3}'.encode()),
    ],
)
def test_keys_and_sets_are_sorted_whatever_the_keys_are(value: object, text: bytes) -> None:
    assert encode_body(value) == text
