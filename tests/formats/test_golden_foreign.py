"""Requests of other clients than Java 5.3.3's (tests/golden/foreign), as a Java broker got and took them."""

import json
from typing import Any

import pytest

from rocketmq_formats.json.bodies import decode_request_body
from rocketmq_formats.remoting.client import HeartbeatData, LockBatchRequestBody, MessageQueue
from rocketmq_formats.remoting.command import decode_frame
from rocketmq_formats.tags import java_hash_code
from tests.paths import GOLDEN_FILES

FOLDER = GOLDEN_FILES / "foreign"
INDEX: list[dict[str, Any]] = json.loads((FOLDER / "index.json").read_text())
MODELS = {"broadcast": "BROADCASTING", "cluster": "CLUSTERING", "orderly": "CLUSTERING"}
CODES_UNKNOWN = {"cpp"}
"""librocketmq sends 0 for each tag's code: it names its tags with every pull."""


def of_code(*codes: int) -> list[Any]:
    return [pytest.param(entry, id=entry["file"]) for entry in INDEX if entry["code"] in codes]


def body_of(entry: dict[str, Any]) -> bytes:
    return decode_frame((FOLDER / entry["file"]).read_bytes()[4:]).body


def test_every_client_is_there() -> None:
    assert {path.name for path in FOLDER.glob("*.bin")} == {entry["file"] for entry in INDEX}
    assert {entry["client"] for entry in INDEX} == {"cpp", "go", "java4", "node"}


@pytest.mark.parametrize("entry", of_code(34))
def test_heartbeats(entry: dict[str, Any]) -> None:
    client, mode = entry["client"], entry["mode"]
    heartbeat = decode_request_body(HeartbeatData, body_of(entry))
    (consumer,) = heartbeat.consumer_data_set
    group = f"golden-group-{client}-{mode}"
    assert (consumer.group_name, consumer.consume_type) == (group, "CONSUME_PASSIVELY")
    assert consumer.message_model == MODELS[mode]
    assert consumer.consume_from_where in {"CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_FIRST_OFFSET"}
    subscriptions = {one.topic: one for one in consumer.subscription_data_set}
    assert subscriptions.keys() - {f"%RETRY%{group}"} == {"golden-topic"}
    tagged = subscriptions["golden-topic"]
    assert (tagged.sub_string, tagged.tags_set) == ("TagA || TagB", {"TagA", "TagB"})
    assert tagged.expression_type == "TAG"
    assert tagged.sub_version > 1_700_000_000_000
    assert tagged.code_set == ({0} if client in CODES_UNKNOWN else {java_hash_code("TagA"), java_hash_code("TagB")})


@pytest.mark.parametrize("entry", of_code(41, 42))
def test_queues_to_lock(entry: dict[str, Any]) -> None:
    body = decode_request_body(LockBatchRequestBody, body_of(entry))
    assert body.consumer_group == f"golden-group-{entry['client']}-orderly"
    assert body.client_id
    assert body.mq_set
    known = {MessageQueue(topic="golden-topic", broker_name="broker-a", queue_id=queue_id) for queue_id in range(2)}
    retried = {MessageQueue(topic=f"%RETRY%{body.consumer_group}", broker_name="broker-a", queue_id=0)}
    assert body.mq_set <= known | retried
