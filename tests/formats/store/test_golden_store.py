"""Files of official 5.3.3 brokers (tests/golden/store): each is understood and written back byte for byte."""

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rocketmq_formats import broker_identity
from rocketmq_formats.store import batch, checkpoint, config_files, consume_queue, epoch_file, segment_names
from rocketmq_formats.store.config_files import decode_config, encode_config
from rocketmq_formats.store.delay_levels import DEFAULT_LEVELS, parse_levels, unit_tags_code
from rocketmq_formats.store.message import (
    Blank,
    Record,
    RecordError,
    RecordFault,
    SysFlag,
    encode_blank,
    encode_record,
    read_record,
)
from rocketmq_formats.store.message_id import decode_host, decode_message_id, encode_message_id
from rocketmq_formats.store.message_properties import (
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    find_property,
    format_properties,
    parse_properties,
)
from rocketmq_formats.store.record_crc import RECORD_CRC_SIZE, check_record_crc, reserve_record_crc, seal_record
from rocketmq_formats.topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from tests.paths import GOLDEN_FILES

FOLDER = GOLDEN_FILES / "store"
INDEX: dict[str, Any] = json.loads((FOLDER / "index.json").read_text())
BROKERS = ("controlled", "alone")
LEVELS = parse_levels(DEFAULT_LEVELS)
NOT_ENCODED = {"position", "size", "body_crc", "body_start", "body_length"}

CONFIGS: dict[str, type[config_files.Body]] = {
    "topics.json": config_files.TopicsFile,
    "consumerOffset.json": config_files.ConsumerOffsetsFile,
    "subscriptionGroup.json": config_files.SubscriptionGroupsFile,
    "delayOffset.json": config_files.DelayOffsetsFile,
}


def read(entry: dict[str, Any]) -> bytes:
    """The file as it was, with its zeros."""
    data = (FOLDER / entry["file"]).read_bytes()
    return data.ljust(entry["size"], b"\0")


def entries(broker: str, *folder: str) -> list[dict[str, Any]]:
    return [e for e in INDEX["files"] if e["file"].startswith("/".join((broker, *folder)) + "/")]


def log(broker: str) -> bytes:
    """The whole commit log, from offset 0."""
    files = sorted(entries(broker, "commitlog"), key=lambda entry: str(entry["path"]))
    names = [Path(entry["path"]).name for entry in files]
    size = files[0]["size"]
    assert [segment_names.segment_offset(name, file_size=size) for name in names] == [
        n * size for n in range(len(names))
    ]
    assert [segment_names.segment_name(n * size) for n in range(len(names))] == names
    return b"".join(map(read, files))


def walk(data: bytes) -> Iterator[Record]:
    position, blanks = 0, 0
    while True:
        try:
            found = read_record(data, position, len(data), check_crc=True)
        except RecordError as error:
            if error.fault is RecordFault.MAGIC and not data[position:].strip(b"\0"):
                return  # nothing is behind the last record
            raise
        position += found.size
        if isinstance(found, Blank):
            blanks += 1
            assert data[found.position :].startswith(encode_blank(found.size))
            assert position % 8192 == 0
        else:
            yield found


@functools.cache
def records_of(broker: str) -> list[Record]:
    return list(walk(log(broker)))


EACH_BROKER = pytest.mark.parametrize("broker", BROKERS)


@EACH_BROKER
def test_records_are_written_back_byte_for_byte(broker: str) -> None:
    data = log(broker)
    for record in records_of(broker):
        fields = {name: value for name, value in msgspec.structs.asdict(record).items() if name not in NOT_ENCODED}
        assert record.physical_offset == record.position
        encoded = encode_record(body=record.body(data), **fields)
        assert encoded == data[record.position : record.position + record.size]


def test_the_samples_hold_every_kind_of_record() -> None:
    controlled, alone = records_of("controlled"), records_of("alone")
    topics = {record.topic.decode() for record in controlled}
    assert topics >= {"Golden", SCHEDULE_TOPIC, TRANS_HALF_TOPIC, "%RETRY%GoldenConsumers"}
    assert {record.sys_flag & 0xC for record in controlled} == {0, 8}
    assert any(len(record.topic) > 127 for record in alone)
    assert all(len(record.store_host) == 20 and len(record.born_host) == 8 for record in alone)
    assert len(log("controlled")) == 2 * 8192, "there is an end of a file"


@EACH_BROKER
def test_properties_are_written_back_byte_for_byte(broker: str) -> None:
    for record in records_of(broker):
        # a batch of the recorder itself leaves out the last separator of a message
        assert format_properties(parse_properties(record.properties)) in (
            record.properties,
            record.properties + b"\x02",
        )


@EACH_BROKER
def test_whole_record_checksums(broker: str) -> None:
    data = log(broker)
    for record in records_of(broker):
        assert check_record_crc(data, record) is (broker == "alone")
        if broker == "alone":
            whole = data[record.position : record.position + record.size]
            blank = reserve_record_crc(record.properties[:-RECORD_CRC_SIZE])
            assert len(blank) == len(record.properties)
            assert seal_record(whole[: -len(blank)] + blank) == whole


@EACH_BROKER
def test_what_was_sent_is_at_the_offset_in_the_answer(broker: str) -> None:
    data = log(broker)
    by_offset = {record.physical_offset: record for record in records_of(broker)}
    for sent in INDEX[broker]:
        request, answer = sent["request"], sent["response"]
        ids = answer["msgId"].split(",")
        records = [by_offset[decode_message_id(text)[1]] for text in ids]
        assert ids == [encode_message_id(record.store_host, record.physical_offset) for record in records]
        assert answer["queueOffset"] == str(records[0].queue_offset)
        assert [record.born_timestamp for record in records] == [int(request["bornTimestamp"])] * len(ids)
        body = bytes.fromhex(sent["body"])
        wanted = [batch.BatchMessage(int(request["flag"]), body, b"")]
        if sent["code"] == 320 and not records[0].sys_flag & SysFlag.INNER_BATCH:
            wanted = batch.decode_batch(body)
            assert batch.encode_batch(wanted) == body
        assert [(record.flag, record.body(data)) for record in records] == [(m.flag, m.body) for m in wanted]
        for record, message in zip(records, wanted, strict=True):
            stored, own = parse_properties(record.properties), parse_properties(message.properties)
            assert stored.items() >= own.items()
            assert record.topic == request["topic"].encode() or "REAL_TOPIC" in stored
            if TRANSACTION_PREPARED in stored:
                assert answer["transactionId"] == find_property(record.properties, UNIQ_KEY)


def test_inner_batches() -> None:
    data = log("alone")
    inner = [record for record in records_of("alone") if record.sys_flag & SysFlag.INNER_BATCH]
    assert len(inner) == 2
    for record in inner:
        assert [m.body for m in batch.decode_batch(bytes(record.body(data)))] == [b"one", b"two"]


@pytest.mark.parametrize(
    "entry", [e for e in INDEX["files"] if "/consumequeue/" in e["file"]], ids=lambda entry: str(entry["file"])
)
def test_units_point_at_their_records(entry: dict[str, Any]) -> None:
    broker = entry["file"].split("/")[0]
    _, topic, queue, name = entry["path"].split("/")
    assert segment_names.segment_offset(name) == 0
    data = read(entry)
    records = {record.physical_offset: record for record in records_of(broker)}
    units = [unit for unit in consume_queue.iter_units(data) if consume_queue.is_unit(unit)]
    assert units
    for offset, (physical_offset, size, tags) in enumerate(units):
        record = records[physical_offset]
        assert (record.topic.decode(), record.queue_id) == (topic, segment_names.queue_id_of(queue))
        assert (record.queue_offset, record.size) == (offset, size)
        assert unit_tags_code(record.topic, record.properties, record.store_timestamp, LEVELS) == tags
    assert consume_queue.pack_units(units).ljust(len(data), b"\0") == data


def test_every_record_has_its_unit() -> None:
    pointed = {
        (broker, unit[0])
        for broker in BROKERS
        for entry in entries(broker, "consumequeue")
        for unit in consume_queue.iter_units(read(entry))
        if consume_queue.is_unit(unit)
    }
    stored = {
        (broker, record.physical_offset)
        for broker in BROKERS
        for record in records_of(broker)
        if not record.sys_flag & SysFlag.INNER_BATCH
    }
    assert stored == pointed


@pytest.mark.parametrize(("name", "epochs"), [("epochFileCheckpoint", 2), ("epochFileCheckpoint.bak", 1)])
def test_epochs(name: str, epochs: int) -> None:
    text = (FOLDER / "controlled" / name).read_bytes()
    decoded = epoch_file.decode_epochs(text)
    assert len(decoded.entries) == epochs
    assert epoch_file.encode_epochs(decoded) == text
    starts = {record.physical_offset for record in records_of("controlled")}
    assert {start for _, start in decoded.starts()} <= starts, "a record starts where an epoch does"


@EACH_BROKER
def test_checkpoint(broker: str) -> None:
    [entry] = [e for e in INDEX["files"] if e["file"] == f"{broker}/checkpoint"]
    data = read(entry)
    decoded = checkpoint.decode_checkpoint(data)
    assert checkpoint.encode_checkpoint(decoded) == data
    times = [record.store_timestamp for record in records_of(broker)]
    assert decoded.physic_msg_timestamp in times
    assert decoded.min_timestamp == min(decoded.physic_msg_timestamp, decoded.logics_msg_timestamp) - 3000


def test_identity_and_abort() -> None:
    text = (FOLDER / "controlled" / "brokerIdentity").read_bytes()
    identity = broker_identity.decode_identity(text)
    assert identity == broker_identity.BrokerIdentity("DefaultCluster", "broker-a", 1)
    assert broker_identity.encode_identity(identity) == text
    assert (FOLDER / "controlled" / "abort").read_bytes().isdigit()


@EACH_BROKER
@pytest.mark.parametrize("name", CONFIGS)
def test_tables_are_written_back_byte_for_byte(broker: str, name: str) -> None:
    text = (FOLDER / broker / "config" / name).read_bytes()
    if name == "consumerOffset.json":  # groupTopicMap follows from the offsets and is never read
        start, end = text.index(b'\t"groupTopicMap"'), text.index(b'\t"offsetTable"')
        text = text[:start] + text[end:]
    assert encode_config(decode_config(CONFIGS[name], text)) == text


def test_hosts() -> None:
    assert {decode_host(record.store_host) for record in records_of("controlled")} == {("127.0.0.1", 31411)}
    assert {decode_host(record.store_host) for record in records_of("alone")} == {("::1", 31421)}
