"""What a crash leaves of a record, and what only looks like that: zeros that producers sent."""

import errno
import itertools
import struct
import tempfile
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_formats.store.message import Record, read_record
from rocketmq_store import checkpoint as checkpoint_module
from rocketmq_store.checkpoint import CheckpointFile
from rocketmq_store.errors import LogDamagedError, StoreFullError
from rocketmq_store.log.segments import MappedFiles
from rocketmq_store.log.torn_records import SECTOR, Crash, Doubt, doubt_of, is_torn
from rocketmq_store.log_cut import LogCut
from rocketmq_store.message_store import MessageStore
from tests.records import make_record
from tests.store.kit import abandon, append_zeros, bodies, draft, found_end, opened, other_boot, show

LARGE = 64 * 1024
"""A file's size, so that the largest properties fit."""
HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"

zeros = st.integers(0, 1600).map(bytes)
content = st.lists(zeros | st.binary(max_size=300), max_size=4).map(b"".join)
value = content.map(lambda data: data.replace(b"\x01", b"x").replace(b"\x02", b"x"))
properties = st.lists(value.map(lambda data: b"NAME\x01" + data + b"\x02"), max_size=2).map(b"".join)
plain = st.integers(0, 2000).map(lambda size: b"KEYS\x01" + b"k" * size + b"\x02")


class Message:
    def __init__(self, body: bytes, properties: bytes) -> None:
        self.body, self.properties = body, properties


def messages(kind: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[Message]]:
    return st.lists(st.builds(Message, content, kind), min_size=1, max_size=8)


def received(store: MessageStore, sent: list[Message]) -> int:
    """As a slave has it from a master that refuses nothing; where the log ends."""
    offset = 0
    for number, message in enumerate(sent):
        record = make_record(
            offset, message.body, queue_offset=number, host=HOST, timestamp=number, properties=message.properties
        )
        store.files.write(offset, record)
        offset += len(record)
    return offset


def record_of(properties: bytes, topic: bytes = b"Topic") -> Record:
    data = make_record(body=b"", topic=topic, host=HOST, properties=properties)
    record = read_record(data, 0, len(data), check_crc=True)
    assert isinstance(record, Record)
    return record


class TestRule:
    @pytest.mark.parametrize(
        ("properties", "topic", "end", "doubt"),
        [
            (b"a\x01b\x02", b"Topic", 512, Doubt.NONE),
            (b"a\x01\0b\x02", b"Topic", 1000, Doubt.NONE),
            (b"a\x01\0\x02", b"Topic", 513, Doubt.HOLE),  # the zero is the sector's last byte
            (b"a\x01\0", b"Topic", 1000, Doubt.ENDS),
            (b"", b"Top\0\0", 1000, Doubt.ENDS),
            (b"a\x01b\x02", b"Top\0\0", 518, Doubt.HOLE),
        ],
    )
    def test_doubt(self, properties: bytes, topic: bytes, end: int, doubt: Doubt) -> None:
        assert doubt_of(record_of(properties, topic), end) is doubt

    @pytest.mark.parametrize("crash", Crash)
    @pytest.mark.parametrize("doubt", Doubt)
    @pytest.mark.parametrize("end", [SECTOR, SECTOR + 1])
    def test_where_the_next_record_is_whole_nothing_is_cut(self, doubt: Doubt, crash: Crash, end: int) -> None:
        # except a writer's last byte that was lost with the sector it ends
        lost = doubt is Doubt.ENDS and crash is Crash.POWER and end == SECTOR
        assert is_torn(doubt, crash, end, followed=True) is lost

    def test_what_is_judged_at_the_end_of_a_log(self) -> None:
        torn = {
            (doubt, crash) for doubt in Doubt for crash in Crash if is_torn(doubt, crash, SECTOR + 1, followed=False)
        }
        assert torn == {(Doubt.ENDS, Crash.KILLED), (Doubt.ENDS, Crash.POWER), (Doubt.HOLE, Crash.POWER)}


class TestContent:
    """Whatever a master accepts is kept, as long as the machine runs."""

    @settings(max_examples=60)
    @given(messages(properties), st.booleans())
    def test_nothing_is_cut_by_a_kill(self, sent: list[Message], checkpoint: bool) -> None:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            store, _ = opened(root, file_size=LARGE)
            end = received(store, sent)
            abandon(store)
            if not checkpoint:
                (root / "checkpoint").unlink()
            store, found = opened(root, file_size=LARGE)
            if not checkpoint:  # then the machine may have lost power: only what nothing follows is in doubt
                assert found.max_offset in {end, end - 92 - len(sent[-1].body) - len(sent[-1].properties)}
                return
            assert (found.max_offset, found.cut) == (end, -1)
            assert store.cut_tail() == end
            assert found_end(store).offset == end
            show(store)
            assert bodies(store) == [message.body for message in sent]
            offset = 0
            for message in sent:
                record = store.record_at(offset)
                assert record is not None
                offset += len(record)
                assert message.properties in bytes(record)
            abandon(store)

    @settings(max_examples=30)
    @given(messages(properties))
    def test_a_new_master_keeps_what_came(self, sent: list[Message]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            store, _ = opened(Path(folder), file_size=LARGE)
            end = received(store, sent)
            store.extend(end, 0)
            assert found_end(store).offset == end
            assert store.cut_tail() == end
            abandon(store)

    @settings(max_examples=60)
    @given(messages(plain), st.data())
    def test_a_slave_that_was_killed_keeps_whole_records_only(self, sent: list[Message], data: st.DataObject) -> None:
        """It writes in order, and ends anywhere."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            store, _ = opened(root, file_size=LARGE)
            end = received(store, sent)
            log = bytes(store.files.read(0, end))
            ends = ends_of(log)
            reached = data.draw(st.integers(0, end))
            store.files.segment_at(0).view[reached:end] = bytes(end - reached)
            abandon(store)
            assert opened(root, file_size=LARGE)[1].max_offset == max(one for one in ends if one <= reached)


def ends_of(log: bytes) -> list[int]:
    ends = [0]
    while ends[-1] < len(log):
        ends.append(ends[-1] + struct.unpack_from(">i", log, ends[-1])[0])
    return ends


class TestPowerCut:
    @settings(max_examples=150)
    @given(messages(plain), st.randoms(use_true_random=False))
    def test_lost_sectors(self, sent: list[Message], random: Random) -> None:
        """Of what was not synced any sector is there, or zeros. What is kept is as it was sent, except for properties
        that were longer than a sector, where the next record is whole."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            store, _ = opened(root, file_size=LARGE)
            end = received(store, sent)
            log = bytearray(store.files.read(0, end))
            before = bytes(log)
            abandon(store)
            other_boot(root)
            for sector in range(0, end, SECTOR):
                if random.random() < 0.1:
                    log[sector : sector + SECTOR] = bytes(len(log[sector : sector + SECTOR]))
            path = root / "commitlog" / f"{0:020d}"
            with path.open("r+b") as file:
                file.write(log)
            store, found = opened(root, file_size=LARGE)
            ends = ends_of(before)
            assert found.max_offset in ends
            for start, stop in itertools.pairwise(ends):
                if stop <= found.max_offset and log[start:stop] != before[start:stop]:
                    following = read_record(log, stop, end, check_crc=True)
                    assert isinstance(following, Record)
                    assert following.physical_offset == stop
            abandon(store)

    @settings(max_examples=60)
    @given(messages(plain), st.data())
    def test_a_lost_end(self, sent: list[Message], data: st.DataObject) -> None:
        """Sectors that were written in order, the last one when it was not full yet."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            store, _ = opened(root, file_size=LARGE)
            end = received(store, sent)
            log = bytes(store.files.read(0, end))
            reached = data.draw(st.integers(0, end))
            store.files.segment_at(0).view[reached:end] = bytes(end - reached)
            abandon(store)
            other_boot(root)
            whole = max(one for one in ends_of(log) if one <= reached)
            assert opened(root, file_size=LARGE)[1].max_offset == whole


def test_a_file_system_that_was_mounted_again_counts_as_another_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = opened(tmp_path)
    abandon(store)
    for cached in (True, False):
        monkeypatch.setattr(checkpoint_module, "is_cached", lambda _, cached=cached: cached)
        checkpoint = CheckpointFile(tmp_path / "checkpoint")
        checkpoint.open()
        assert checkpoint.same_boot is cached
        checkpoint.close()


class TestDamage:
    """No record, and whole ones behind it, where everything was durable."""

    @staticmethod
    def damaged(root: Path) -> tuple[list[int], Path]:
        store, _ = opened(root)
        ends = [store.append(draft(b"%02d" % n * 100), 10_000).end for n in range(12)]
        show(store)
        store.close()
        path = root / "commitlog" / f"{0:020d}"
        with path.open("r+b") as file:
            file.seek(ends[2] + 120)
            file.write(b"\xff")
        return ends, path

    @pytest.mark.parametrize("clean", [True, False])
    def test_cut_and_recorded_where_it_is_unknown_what_was_durable(self, tmp_path: Path, clean: bool) -> None:
        ends, path = self.damaged(tmp_path)
        (tmp_path / "checkpoint").unlink()
        if not clean:
            (tmp_path / "abort").touch()
        else:
            (tmp_path / "consumequeue" / "T" / "0").rename(tmp_path / "elsewhere")
        before = path.read_bytes()
        store, found = opened(tmp_path)
        assert (found.cut, store.max_offset) == (ends[2], ends[2])
        self.put_aside(tmp_path, before[ends[2] : ends[-1]], ends[2], ends[-1])
        noted = LogCut(tmp_path).read()
        assert noted is not None
        assert f"damaged at offset {ends[2]} " in noted
        show(store)
        assert bodies(store) == [b"00" * 100, b"01" * 100, b"02" * 100]
        store.close()
        LogCut(tmp_path).forget()
        assert opened(tmp_path)[1].cut == -1
        assert LogCut(tmp_path).read() is None

    def test_cut_and_noted_before_what_java_knows_to_be_durable(self, tmp_path: Path) -> None:
        ends, _ = self.damaged(tmp_path)
        (tmp_path / "abort").touch()
        with (tmp_path / "checkpoint").open("r+b") as file:
            file.write(struct.pack(">qq", 13_000, 13_000))  # as Java would: ours does not count any more
        assert opened(tmp_path)[1].cut == ends[2]
        assert LogCut(tmp_path).read() is not None

    def test_a_start_that_dies_in_the_cut_does_not_go_on_behind_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The checkpoint knows of a place behind the damage, where there are zeros by now."""
        ends, path = self.damaged(tmp_path)
        (tmp_path / "abort").touch()
        data = bytearray(path.read_bytes())
        data[ends[6] + 4] ^= 0xFF  # so the walk does not begin where the checkpoint says
        path.write_bytes(data)
        checkpoint = CheckpointFile(tmp_path / "checkpoint")
        checkpoint.open()
        java = msgspec.structs.replace(checkpoint.java, physic_msg_timestamp=13_000, logics_msg_timestamp=13_000)
        checkpoint.write(java, ends[6])
        checkpoint.close()
        cut = MappedFiles.truncate

        def dies(files: MappedFiles, offset: int) -> None:
            cut(files, offset)
            raise KeyboardInterrupt

        monkeypatch.setattr(MappedFiles, "truncate", dies)
        with pytest.raises(KeyboardInterrupt):
            opened(tmp_path)
        monkeypatch.undo()
        assert opened(tmp_path)[1].max_offset == ends[2]
        assert LogCut(tmp_path).read() is not None

    def test_without_room_for_what_is_put_aside_nothing_is_cut(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, path = self.damaged(tmp_path)
        (tmp_path / "checkpoint").unlink()
        before = path.read_bytes()

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "full")

        monkeypatch.setattr(MappedFiles, "copy", full)
        (tmp_path / "abort").touch()
        with pytest.raises(StoreFullError):
            opened(tmp_path)
        assert path.read_bytes() == before
        assert LogCut(tmp_path).read() is None

    def test_cut_behind_it(self, tmp_path: Path) -> None:
        ends, _ = self.damaged(tmp_path)
        (tmp_path / "abort").touch()
        with (tmp_path / "checkpoint").open("r+b") as file:
            file.write(struct.pack(">qq", 12_999, 12_999))
        path = tmp_path / "commitlog" / f"{0:020d}"
        before = path.read_bytes()
        assert opened(tmp_path)[1].cut == ends[2]
        self.put_aside(tmp_path, before[ends[2] : ends[-1]], ends[2], ends[-1])
        assert LogCut(tmp_path).read() is None  # it may never have been acknowledged

    @staticmethod
    def put_aside(root: Path, expected: bytes, start: int, end: int) -> None:
        """What was cut off although whole records are in it can be had."""
        assert (root / f"commitlog.aside-{start}-{end}").read_bytes() == expected

    def test_whole_records_behind_a_hole_in_what_was_not_durable_are_put_aside(self, tmp_path: Path) -> None:
        store, _ = opened(tmp_path)
        show(store)
        store.durability.flush()
        ends = [store.append(draft(b"%02d" % n * 100), 1).end for n in range(40)]  # in several files
        for at in (ends[2], ends[20]):
            segment = store.files.segment_at(at)
            segment.view[at - segment.start + 120] ^= 1
        before = bytes(b"".join(segment.view for segment in store.files.segments))
        abandon(store)
        other_boot(tmp_path)
        store, found = opened(tmp_path)
        assert (found.cut, store.max_offset) == (ends[2], ends[2])
        self.put_aside(tmp_path, before[ends[2] : ends[-1]], ends[2], ends[-1])
        store.append(draft(b"goes on"), 1)
        store.close()

    def test_whole_records_behind_a_large_hole_are_put_aside(self, tmp_path: Path) -> None:
        """As large as what a disk may have kept of nothing: megabytes."""
        size = 4 << 20
        store, _ = opened(tmp_path, file_size=size)
        ends = [store.append(draft(bytes([65 + n]) * 100_000), 1).end for n in range(30)]
        segment = store.files.segment_at(0)
        segment.view[ends[2] : ends[22]] = bytes(ends[22] - ends[2])
        before = bytes(segment.view)
        abandon(store)
        other_boot(tmp_path)
        store, found = opened(tmp_path, file_size=size)
        assert (found.cut, store.max_offset) == (ends[2], ends[2])
        self.put_aside(tmp_path, before[ends[2] : ends[-1]], ends[2], ends[-1])
        store.close()

    def test_a_new_master_does_not_cut_its_own_copies(self, tmp_path: Path) -> None:
        store, _ = opened(tmp_path)
        ends = [store.append(draft(b"%02d" % n * 100), 1).end for n in range(5)]
        store.extend(ends[-1], ends[0])
        store.files.segment_at(0).view[ends[2] + 120] ^= 1
        before = bytes(store.files.segment_at(0).view)
        with pytest.raises(LogDamagedError, match=f"at offset {ends[2]} "):
            store.cut_tail()
        assert bytes(store.files.segment_at(0).view) == before

    def test_damage_does_not_move_the_end_that_a_slave_reports(self, tmp_path: Path) -> None:
        """Its sidecar removes what is behind that end."""
        store, _ = opened(tmp_path)
        ends = [store.append(draft(b"%02d" % n * 100), 1).end for n in range(30)]
        store.extend(ends[-1], ends[0])
        for damaged in (3, 4, 20):
            at = ends[damaged - 1] + 120
            segment = store.files.segment_at(at)
            segment.view[at - segment.start] ^= 1
        segment = store.files.segment_at(ends[-1])
        segment.view[ends[-1] - segment.start] = 1  # of a record that has not arrived
        found = found_end(store)
        assert (found.offset, store.max_offset) == (ends[-1], ends[-1])
        assert found.damage is not None
        assert found.damage.offset == ends[2]
        assert "checksum" in found.damage.reason

    def test_what_looks_like_a_record_in_a_body_does_not_count(self, tmp_path: Path) -> None:
        """Half a record of a slave is no damage, whatever its body says."""
        store, _ = opened(tmp_path)
        first = store.append(draft(b"first"), 1).end
        inner = make_record(first + 88, b"", host=HOST)
        end = store.append(draft(inner + bytes(500)), 1).end
        store.files.segment_at(0).view[end - 40 : end] = bytes(40)
        store.extend(end, 0)
        assert found_end(store).offset == first
        assert store.cut_tail() == first


def test_a_power_cut_is_known_by_the_boot(tmp_path: Path) -> None:
    """The last message may have lost a sector only if the machine has started since."""
    for again, kept in ((False, True), (True, False)):
        root = tmp_path / str(again)
        store, _ = opened(root)
        made = append_zeros(store, draft(b"x"), 1100)
        abandon(store)
        if again:
            other_boot(root)
        assert opened(root)[1].max_offset == (made.end if kept else 0)
