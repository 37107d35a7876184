"""One story told to a name server, step by step: the official one answered it once (`namesrv_capture`), ours must too.

A step is a request over a named connection; `close` ends a connection. Bodies are given as text (or bytes, for the
compressed form); the answers are in `namesrv/answers.json`, one entry per step that asks something.
"""

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CLUSTER = "C"
A, B, A2 = "127.0.0.1:30911", "127.0.0.1:30931", "127.0.0.1:30951"
HA, HB, HA2 = "127.0.0.1:30912", "127.0.0.1:30932", "127.0.0.1:30952"
NEW, OLD = 479, 0
Json = Any


@dataclass(frozen=True)
class Step:
    """One request; `code` 0 means: close the connection."""

    name: str
    code: int = 0
    ext: Mapping[str, str] | None = None
    body: bytes = b""
    connection: str = "tool"
    version: int = NEW
    settle: bool = False
    """Java does this one in another thread: wait before the next step."""
    tags: Sequence[str] = field(default=())
    """`unordered`: lists come out of Java's hash tables; `escapes`: Java escapes some characters that need not be."""


def topic(name: str, *, queues: int = 8, perm: int = 6, flag: int = 0) -> dict[str, Json]:
    """A TopicConfig as brokers register it."""
    return {
        "attributes": {},
        "order": False,
        "perm": perm,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": flag,
        "writeQueueNums": queues,
    }


def version(counter: int, state: int = 0) -> dict[str, int]:
    """A DataVersion."""
    return {"counter": counter, "stateVersion": state, "timestamp": 1_795_247_786_979}


def wrapper(topics: Sequence[Mapping[str, Json]], data_version: Mapping[str, int], mapping: Json = None) -> bytes:
    """Body of 103, plain."""
    return json.dumps(
        {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": data_version,
                "mappingDataVersion": version(0),
                "topicConfigTable": {config["topicName"]: config for config in topics},
                "topicQueueMappingDetailMap": {},
                "topicQueueMappingInfoMap": mapping or {},
            },
        },
        separators=(",", ":"),
        ensure_ascii=False,
    ).encode()


def compressed(topics: Sequence[Mapping[str, Json]], data_version: Mapping[str, int]) -> bytes:
    """Body of 103, as brokers with compressedRegister would send it if they said so."""

    def text(value: str) -> bytes:
        return struct.pack(">i", len(value.encode())) + value.encode()

    parts = [text(json.dumps(data_version)), struct.pack(">i", len(topics))]
    parts += [
        text(f"{t['topicName']} {t['readQueueNums']} {t['writeQueueNums']} {t['perm']} SINGLE_TAG {{}}") for t in topics
    ]
    parts += [text("[]"), struct.pack(">i", 0)]
    return zlib.compress(b"".join(parts))


def register(
    name: str, *, address: str = A, ha: str = HA, broker_id: int = 0, broker: str = "broker-a", body: bytes, **more: str
) -> Step:
    """103; `more` are ext fields that differ, empty ones are left out."""
    ext = {
        "brokerName": broker,
        "brokerAddr": address,
        "clusterName": CLUSTER,
        "haServerAddr": ha,
        "brokerId": str(broker_id),
        "enableActingMaster": "false",
        "compressed": "false",
        "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
    } | more
    return Step(name, 103, {key: value for key, value in ext.items() if value}, body, connection=address)


def unregister(name: str, *, address: str = A, broker_id: int = 0, broker: str = "broker-a") -> Step:
    """104."""
    ext = {"brokerName": broker, "brokerAddr": address, "clusterName": CLUSTER, "brokerId": str(broker_id)}
    return Step(name, 104, ext, connection=address, settle=True)


def route(name: str, of: str, **more: Json) -> Step:
    """105."""
    return Step(name, 105, {"topic": of}, **more)


def query_version(name: str, data_version: Mapping[str, int], address: str = A) -> Step:
    """322."""
    ext = {"brokerName": "broker-a", "brokerAddr": address, "clusterName": CLUSTER, "brokerId": "0"}
    return Step(name, 322, ext, json.dumps(data_version).encode(), connection=address)


def kv(name: str, code: int, key: str = "", value: str = "", namespace: str = "ORDER_TOPIC_CONFIG") -> Step:
    """100, 101, 102, 219."""
    ext = {"namespace": namespace, "key": key, "value": value}
    return Step(name, code, {key: value for key, value in ext.items() if value})


T, U, V = topic("T"), topic("U", queues=4, perm=7, flag=1), topic("V", flag=2)
ODD = topic("Ünï/code<é>\U0001f600")
ODD_TEXT = 'z\u00f6/"\\<\u007f\u2028\u4e2d\U0001f600\n\u0001'
MAPPING = {
    "T": {
        "bname": "broker-a",
        "currIdMap": {"0": 0, "1": 1},
        "dirty": False,
        "epoch": 7,
        "topic": "T",
        "totalQueues": 2,
    }
}

STORY: Sequence[Step] = (
    route("route of nothing", "T"),
    Step("cluster info of nothing", 106),
    Step("system topics of nothing", 304),
    Step("member group of nothing", 901, {"clusterName": CLUSTER, "brokerName": "broker-a"}),
    Step("topics of an unknown cluster", 224, {"cluster": CLUSTER}),
    query_version("version before registration", version(1)),
    register("one topic before all topics", body=wrapper([T], version(1))),
    register("wrong checksum", body=wrapper([T, U], version(1)), bodyCrc32="1"),
    register("master", body=wrapper([T, U, V, ODD], version(1, 1))),
    route("route", "T"),
    route("route for an old client", "T", version=OLD),
    Step("route for an old client that takes JSON", 105, {"topic": "T", "acceptStandardJsonOnly": "true"}, version=OLD),
    route("route with characters of the world", ODD["topicName"]),
    route("the same for an old client", ODD["topicName"], version=OLD),
    Step("cluster info", 106),
    Step("member group", 901, {"clusterName": CLUSTER, "brokerName": "broker-a"}),
    query_version("version as it is", version(1, 1)),
    query_version("version that differs", version(2, 1)),
    Step("heartbeat", 904, {"clusterName": CLUSTER, "brokerName": "broker-a", "brokerAddr": A}, connection=A),
    register("slave", address=B, ha=HB, broker_id=2, body=wrapper([T, U, topic("slave-only")], version(1, 1))),
    route("route with a slave", "T"),
    route("the same for an old client with a slave", "T", version=OLD),
    route("a slave's topics do not count", "slave-only"),
    Step("cluster info with a slave", 106),
    Step("member group with a slave", 901, {"clusterName": CLUSTER, "brokerName": "broker-a"}),
    register(
        "unchanged version, changed topic, new topic", body=wrapper([topic("T", queues=3), topic("W")], version(1, 1))
    ),
    route("an unchanged version changes nothing", "T"),
    route("but brings unknown topics", "W"),
    register("changed version", body=wrapper([topic("T", queues=3), U], version(2, 1))),
    route("a changed version counts", "T"),
    route("topics left out stay", "W"),
    register("one topic only, registered before", body=wrapper([topic("T", queues=5)], version(3, 1))),
    route("an incremental registration", "T"),
    register("stale master at another address", address=A2, ha=HA2, body=wrapper([T, U], version(9, 0))),
    Step("it changed nothing", 106),
    register("newcomer of the same epoch", address=A2, ha=HA2, body=wrapper([T, U], version(9, 1))),
    Step("it has taken the id", 106),
    register("the slave again", address=B, ha=HB, broker_id=2, body=wrapper([T, U], version(1, 1))),
    register("the slave becomes master", address=B, ha=HB, body=wrapper([T, U], version(10, 2))),
    Step("one address, one id", 106),
    register("the old master becomes a slave", address=A2, ha=HA2, broker_id=1, body=wrapper([T, U], version(9, 1))),
    Step("roles changed", 106),
    register(
        "zone and static topic", address=B, ha=HB, body=wrapper([T, U], version(11, 2), MAPPING), __ZONE_NAME="z1"
    ),
    route("route with zone and mapping", "T"),
    route("the same for an old client with zone and mapping", "T", version=OLD),
    register("odd characters", address=B, ha=HB, body=wrapper([T, U], version(12, 2)), __ZONE_NAME=ODD_TEXT),
    route("route with odd characters", "U"),
    route("the same for an old client with odd characters", "U", version=OLD, tags=("escapes",)),
    register("zone as before", address=B, ha=HB, body=wrapper([T, U], version(13, 2)), __ZONE_NAME="z1"),
    register("another broker", address=A, broker="broker-b", body=wrapper([U, topic("X")], version(1))),
    Step("two brokers", 106, tags=("unordered",)),
    route("route over two brokers", "U", tags=("unordered",)),
    Step("all topics", 206, tags=("unordered",)),
    Step("topics of the cluster", 224, {"cluster": CLUSTER}, tags=("unordered",)),
    Step("system topics", 304, tags=("unordered", "any broker")),
    Step("unit topics", 311, tags=("unordered",)),
    Step("unit subscriptions", 312, tags=("unordered",)),
    Step("unit subscriptions of topics outside units", 313, tags=("unordered",)),
    Step("wipe", 205, {"brokerName": "broker-b"}),
    route("wiped", "X"),
    Step("wipe of an unknown broker", 205, {"brokerName": "nobody"}),
    Step("add", 327, {"brokerName": "broker-b"}),
    route("added", "U", tags=("unordered",)),
    Step(
        "register a topic by hand",
        217,
        {"topic": "hand"},
        b'{"queueDatas":[{"brokerName":"broker-b","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2}]}',
    ),
    route("the topic made by hand", "hand"),
    Step(
        "register a topic of an unknown broker",
        217,
        {"topic": "hand2"},
        b'{"queueDatas":[{"brokerName":"nobody","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2}]}',
    ),
    route("no such topic", "hand2"),
    Step("delete a topic of another cluster", 216, {"topic": "hand", "clusterName": "other"}),
    route("still there", "hand"),
    Step("delete a topic of the cluster", 216, {"topic": "hand", "clusterName": CLUSTER}),
    route("gone", "hand"),
    Step("delete a topic", 216, {"topic": "X"}),
    route("gone too", "X"),
    kv("no KV yet", 101, "T"),
    kv("no KV list yet", 219),
    kv("put", 100, "T", "broker-a:8"),
    kv("get", 101, "T"),
    kv("list", 219),
    register("order topics are told", address=A, broker="broker-b", body=wrapper([U, topic("X")], version(2))),
    kv("delete", 102, "T"),
    kv("deleted", 101, "T"),
    kv("an empty namespace is there", 219),
    kv("put without a key", 100, "", "v"),
    Step("black list", 318, None, b"kvConfigPath=/tmp/x\n"),
    Step("unknown code", 9999),
    unregister("the slave leaves", address=A2, broker_id=1),
    Step("without the slave", 106, tags=("unordered",)),
    Step("the connection of broker-b ends", connection=A, settle=True),
    Step("without broker-b", 106),
    route("its topics are gone", "X"),
    Step(
        "compressed body",
        103,
        {
            "brokerName": "broker-c",
            "brokerAddr": A2,
            "clusterName": CLUSTER,
            "haServerAddr": HA2,
            "brokerId": "0",
            "compressed": "true",
            "bodyCrc32": "0",
        },
        compressed([topic("Y"), topic("Z", queues=2, perm=4)], version(4)),
        connection=A2,
    ),
    route("a topic from a compressed body", "Z"),
    query_version("its version", version(4), A2),
    unregister("broker-c leaves", address=A2, broker="broker-c"),
    register(
        "acting: master", address=A, broker="acting", body=wrapper([T, U], version(1, 1)), enableActingMaster="true"
    ),
    register(
        "acting: slave",
        address=A2,
        ha=HA2,
        broker_id=1,
        broker="acting",
        body=wrapper([T, U], version(1, 1)),
        enableActingMaster="true",
        heartbeatTimeoutMillis="10000",
    ),
    Step("acting: with a master", 106, tags=("unordered",)),
    unregister("acting: the master leaves", address=A, broker="acting"),
    route("acting: its topics are read-only", "U", tags=("unordered",)),
    register(
        "acting: prime slave again",
        address=A2,
        ha=HA2,
        broker_id=1,
        broker="acting",
        body=wrapper([T, U, topic("late")], version(2, 1)),
        enableActingMaster="true",
    ),
    route("acting: a prime slave's topics are read-only", "late"),
    unregister("acting: the slave leaves", address=A2, broker_id=1, broker="acting"),
    register(
        "old style: slave without the key",
        address=A2,
        ha=HA2,
        broker_id=1,
        broker="old",
        body=wrapper([T, topic("o")], version(1)),
        enableActingMaster="",
    ),
    route("old style: a slave alone brings no topics", "o"),
    unregister("old style: it leaves", address=A2, broker_id=1, broker="old"),
    register(
        "prime slave without acting",
        address=A2,
        ha=HA2,
        broker_id=1,
        broker="p",
        body=wrapper([T, topic("o")], version(1)),
    ),
    route("prime slave without acting keeps write permission", "o"),
    unregister("the master of broker-a leaves", address=B),
    unregister("the prime slave leaves", address=A2, broker_id=1, broker="p"),
    Step("empty again", 106),
)
