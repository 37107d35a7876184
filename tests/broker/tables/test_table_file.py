"""Files of tables at a start: what cannot be read costs no more than itself."""

import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rocketmq_broker.tables import consumer_tables, table_file
from rocketmq_broker.tables.table_file import TableDamagedError, load_table
from rocketmq_formats.json.bodies import Body
from rocketmq_formats.store.config_files import ConsumerOffsetsFile, DelayOffsetsFile, TopicsFile, decode_config
from rocketmq_formats.topics import DataVersion
from rocketmq_runtime.files.filesystem import DiskFullError
from tests.broker.broker_kit import running

BAD = b'{"topicConfigTable":{"T":{"topicName":"T","perm":4},"odd":{"topicName":"odd","perm":"RW"}}}'


def kept(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.glob("*.unread")]


async def test_one_entry_does_not_keep_a_broker_from_its_start(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "topics.json").write_bytes(BAD)
    groups = b'{"subscriptionGroupTable":{"G":{"retryMaxTimes":3},"H":7}}'
    (config / "subscriptionGroup.json").write_bytes(groups)
    async with running(tmp_path) as group:
        topic = group.app.topics.get("T")
        assert topic is not None
        assert (topic.topic_name, topic.perm, group.app.topics.get("odd")) == ("T", 4, None)
        known = group.app.core.tables.groups.get("G")
        assert known is not None
        assert (known.group_name, known.retry_max_times, group.app.core.tables.groups.get("H")) == ("G", 3, None)
        await group.send(topic="new")
    assert b'"odd"' not in (config / "topics.json").read_bytes()
    assert sorted(kept(config)) == sorted([BAD, groups])


def test_what_java_kept_before_the_last_change_stands_in(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_bytes(b'{"offsetTable":{"T@G":{0:"x",1:8}}}')
    path.with_name("consumerOffset.json.bak").write_bytes(b'{"offsetTable":{"T@G":{0:5,1:6}}}')
    for _ in range(2):
        table = load_table(path, ConsumerOffsetsFile)
        assert table is not None
        assert table.offset_table == {"T@G": {0: 5, 1: 8}}
        assert len(kept(tmp_path)) == 1, "once, whatever the number of starts"


@pytest.mark.parametrize("copy", [None, b'{"dataVersion":"y","offsetTable":{"T@G":{1:6}}}'], ids=["no copy", "copy"])
@pytest.mark.parametrize(
    ("kind", "text", "named"),
    [
        (ConsumerOffsetsFile, b'{"offsetTable":{"T@G":{0:"x",1:8}}}', "T@G 0: "),
        (ConsumerOffsetsFile, b'{"dataVersion":{"counter":"x"}}', "dataVersion: "),
        (DelayOffsetsFile, b'{"offsetTable":{3:"x"}}', ": 3: "),
        (TopicsFile, b'{"dataVersion":7}', "dataVersion: "),
    ],
)
def test_no_offset_and_no_version_is_left_out(
    tmp_path: Path, kind: type[Body], text: bytes, named: str, copy: bytes | None
) -> None:
    """A consumer would go to the end of its queue, and slaves would copy the table without the offset."""
    path = tmp_path / "table.json"
    path.write_bytes(text)
    if copy is not None and kind is not DelayOffsetsFile:
        path.with_name("table.json.bak").write_bytes(copy)
    with pytest.raises(TableDamagedError, match=named):
        load_table(path, kind)
    assert path.read_bytes() == text
    assert not kept(tmp_path)


def test_without_room_for_what_cannot_be_read_there_is_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "topics.json").write_bytes(BAD)

    def full(path: Path, _data: bytes) -> None:
        raise DiskFullError(path, "no space")

    monkeypatch.setattr(table_file, "keep_unread", full)
    with pytest.raises(TableDamagedError, match="no copy can be kept"):
        load_table(tmp_path / "topics.json", TopicsFile)


@pytest.mark.parametrize("field", [b'"history":{"x":"1:2"}', b'"escaped":{"1":"x"}'])
async def test_a_damaged_history_of_delays_is_named(tmp_path: Path, field: bytes) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "delayOffset.json").write_bytes(b"{%b}" % field)
    with pytest.raises(TableDamagedError, match=r"delayOffset\.json: delay offsets: .*put back a good copy"):
        async with running(tmp_path):
            pass


async def test_a_log_without_tables_is_reported(tmp_path: Path) -> None:
    """As slaves copy what their master has, it would cost them their tables too."""
    with capture_logs() as lines:
        async with running(tmp_path) as group:
            await group.send()
        async with running(tmp_path):
            pass
    assert not [line for line in lines if "tables are missing" in line["event"]], "a new store, and a whole one"
    shutil.rmtree(tmp_path / "config")
    with capture_logs() as lines:
        async with running(tmp_path):
            pass
    assert [line["folder"] for line in lines if "tables are missing" in line["event"]] == [str(tmp_path / "config")]


def test_consumer_offsets_are_written_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """To sort the keys of 100,000 takes 0.1 s in one call, for which the event loop waits."""
    monkeypatch.setattr(consumer_tables, "SLICE", 2)
    texts = {f"T@G{number}": b"0:%d" % number for number in (3, 1, 2, 5, 4)}
    text = consumer_tables._offsets_text(DataVersion(counter=7), None, texts)
    file = decode_config(ConsumerOffsetsFile, text)
    assert (file.data_version.counter, list(file.offset_table.items())) == (
        7,
        [(f"T@G{number}", {0: number}) for number in (3, 1, 2, 5, 4)],
    )
    empty = decode_config(ConsumerOffsetsFile, consumer_tables._offsets_text(DataVersion(), None, {}))
    assert empty.offset_table == {}
