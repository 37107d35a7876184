"""What a broker does with a store: messages in, made visible, out; offsets, limits, roles."""

import os
from pathlib import Path

import pytest

from rocketmq_formats.store.message import MAGIC_BLANK, read_records
from rocketmq_formats.store.message_id import decode_message_id
from rocketmq_formats.tags import java_hash_code
from rocketmq_store.errors import (
    MessageIllegalError,
    NotWriterError,
    PropertiesSizeExceededError,
    StoreFullError,
    StoreInUseError,
)
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import Draft, GetStatus
from tests.store.kit import FILE, QUEUE_FILE, abandon, bodies, draft, opened, put, show

V6 = bytes(15) + b"\1" + b"\0\0\0\1"


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    return opened(tmp_path)[0]


class TestAppend:
    def test_fields_and_place(self, store: MessageStore) -> None:
        made = store.append(
            Draft(
                topic=b"T",
                queue_id=3,
                body=b"body",
                properties=b"KEYS\x01k\x02",
                flag=7,
                sys_flag=1,
                born_timestamp=5,
                born_host=V6,
                reconsume_times=2,
                prepared_transaction_offset=9,
            ),
            1234,
        )
        again = store.append(draft(b"b2", queue_id=3), 1000)
        show(store)
        (first, second) = read_records(b"".join(store.get("T", 3, 0).records), check_crc=True)
        assert (first.queue_id, first.flag, first.sys_flag, first.born_timestamp) == (3, 7, 1 | 0x10, 5)
        assert (first.born_host, first.reconsume_times, first.prepared_transaction_offset) == (V6, 2, 9)
        assert (first.properties, first.topic, first.physical_offset) == (b"KEYS\x01k\x02", b"T", made.offset)
        assert (made.offset, made.end, made.queue_offset, again.queue_offset) == (0, again.offset, 0, 1)
        assert decode_message_id(again.message_id)[1] == again.offset
        assert second.store_timestamp == again.store_timestamp == 1234  # never before an earlier message's

    def test_invisible_until_confirmed(self, store: MessageStore) -> None:
        ends = [store.append(draft(b"%d" % n), 1).end for n in range(3)]
        assert store.get("T", 0, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
        assert store.dispatch(ends[1] + 5) == {("T", 0)}
        assert bodies(store) == [b"0", b"1"]
        assert (store.queue_bounds("T", 0), store.next_queue_offset("T", 0)) == ((0, 2), 3)
        assert store.dispatch(ends[1] + 5) == set()
        assert store.dispatch(ends[0]) == set()
        assert bodies(store) == [b"0", b"1"]

    def test_a_full_file_ends_with_a_blank(self, store: MessageStore) -> None:
        size = store.append(draft(b"x" * 1000), 1).end
        fits = FILE - 2 * size - 8 - (size - 1000)
        store.append(draft(b"x" * 1000), 1)
        assert store.append(draft(b"x" * fits), 1).end == FILE - 8  # the smallest gap
        assert store.append(draft(b"next"), 1).offset == FILE
        blank = bytes(store.files.read(FILE - 8, 8))
        assert blank == (8).to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big")
        show(store)
        assert bodies(store)[-1] == b"next"

    def test_one_byte_more_goes_into_the_next_file(self, store: MessageStore) -> None:
        size = store.append(draft(b"x" * 1000), 1).end
        store.append(draft(b"x" * 1000), 1)
        assert store.append(draft(b"x" * (FILE - 2 * size - 8 - (size - 1000) + 1)), 1).offset == FILE

    def test_batches(self, store: MessageStore) -> None:
        put(store, b"before")
        made = store.append_batch([draft(b"a%d" % n) for n in range(4)], 50)
        assert (made.queue_offset, made.count, len(made.message_id.split(","))) == (1, 4, 4)
        big = store.append_batch([draft(b"x" * 1200) for _ in range(3)], 50)
        assert big.offset == FILE  # together in one file
        show(store)
        assert bodies(store) == [b"before", b"a0", b"a1", b"a2", b"a3", *[b"x" * 1200] * 3]

    def test_batches_that_are_none(self, store: MessageStore) -> None:
        with pytest.raises(MessageIllegalError, match="one queue"):
            store.append_batch([draft(b"1"), draft(b"2", queue_id=1)], 1)
        with pytest.raises(MessageIllegalError, match="mappedFileSizeCommitLog"):
            store.append_batch([draft(b"x" * 1200) for _ in range(4)], 1)
        assert store.max_offset == 0

    def test_a_batch_of_more_than_the_largest_message_and_its_allowance(self, tmp_path: Path) -> None:
        store, _ = opened(tmp_path, file_size=1024 * 1024, max_message_size=1000)
        with pytest.raises(MessageIllegalError, match="maxMessageSize"):
            store.append_batch([draft(b"") for _ in range(1000)], 1)
        assert store.max_offset == 0
        assert store.append_batch([draft(b"") for _ in range(500)], 1).count == 500

    @pytest.mark.parametrize(
        ("bad", "error"),
        [
            (draft(b"x" * 2001), MessageIllegalError),
            (draft(b"", topic=b"t" * 256), MessageIllegalError),
            (draft(b"", topic=b"a/b"), MessageIllegalError),
            (draft(b"", topic=b".."), MessageIllegalError),
            (draft(b"", topic=b""), MessageIllegalError),
            (draft(b"", topic=b"\xff\xfe"), MessageIllegalError),
            (draft(b"", queue_id=-1), MessageIllegalError),
            (draft(b"", queue_id=65_536), MessageIllegalError),
            (draft(b"", flag=2**40), MessageIllegalError),
            (draft(b"", born_host=b"123"), MessageIllegalError),
            (draft(b"", properties=b"p" * 32_768), PropertiesSizeExceededError),
            (draft(b"", topic=b"SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x01soon\x02"), MessageIllegalError),
        ],
    )
    def test_refused(self, tmp_path: Path, bad: Draft, error: type[Exception]) -> None:
        store, _ = opened(tmp_path, max_message_size=2000)
        with pytest.raises(error):
            store.append(bad, 1)
        assert (store.max_offset, store.queues()) == (0, {})
        put(store, b"good")
        assert bodies(store) == [b"good"]

    def test_long_topics(self, store: MessageStore) -> None:
        topic = b"%RETRY%" + b"g" * 200
        put(store, b"v2", topic=topic)
        assert bodies(store, topic.decode()) == [b"v2"]

    def test_half_transactions_go_into_no_queue(self, store: MessageStore) -> None:
        for sys_flag in (4, 12):
            assert store.append(draft(b"half", sys_flag=sys_flag), 1).queue_offset == 0
        store.append(draft(b"committed", sys_flag=8), 1)
        show(store)
        assert bodies(store) == [b"committed"]
        assert store.dispatched_offset == store.max_offset

    def test_without_the_lock(self, store: MessageStore) -> None:
        put(store, b"1")
        store.writer.release()
        with pytest.raises(NotWriterError):
            store.append(draft(b"2"), 1)
        assert bodies(store) == [b"1"]


class TestGet:
    def test_statuses(self, store: MessageStore) -> None:
        assert store.get("T", 0, 5).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
        store.append(draft(b"?"), 1)
        result = store.get("T", 0, 5)
        assert (result.status, result.next_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)
        put(store, b"1", b"2")
        for offset, status, following in (
            (3, GetStatus.OFFSET_OVERFLOW_ONE, 3),
            (9, GetStatus.OFFSET_OVERFLOW_BADLY, 3),
            (-1, GetStatus.OFFSET_TOO_SMALL, 0),
        ):
            result = store.get("T", 0, offset)
            assert (result.status, result.next_offset, result.max_offset) == (status, following, 3)

    def test_limits(self, store: MessageStore) -> None:
        put(store, *(b"x" * 100 for _ in range(9)))
        assert store.get("T", 0, 0, max_messages=3).count == 3
        one = store.get("T", 0, 0, max_messages=1)
        assert store.get("T", 0, 0, max_bytes=2 * one.size).count == 2
        assert store.get("T", 0, 0, max_bytes=1).count == 1  # at least one
        assert store.get("T", 0, 0, max_messages=0).count == 1

    def test_what_is_behind_memory_comes_in_smaller_portions(self, tmp_path: Path) -> None:
        store, _ = opened(tmp_path, in_memory_ratio=0)
        put(store, *(b"%d" % n for n in range(10)))
        result = store.get("T", 0, 0)
        assert (result.count, result.lagging) == (8, True)

    def test_neighbours_are_one_piece(self, store: MessageStore) -> None:
        for queue_id in (0, 0, 1, 0, 0, 0):
            put(store, b"m", queue_id=queue_id)
        result = store.get("T", 0, 0)
        assert (result.count, len(result.records)) == (5, 2)
        assert result.size == sum(map(len, result.records))

    def test_tags(self, store: MessageStore) -> None:
        for n in range(6):
            store.append(draft(b"%d" % n, properties=b"TAGS\x01%b\x02" % (b"even" if n % 2 == 0 else b"odd")), 1)
        show(store)
        result = store.get("T", 0, 0, tag_codes={java_hash_code("odd")})
        assert (result.status, result.count, result.next_offset) == (GetStatus.FOUND, 3, 6)
        result = store.get("T", 0, 1, tag_codes={17})
        assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 6)
        assert store.get("T", 0, 4, tag_codes={java_hash_code("odd"), 17}).count == 1

    def test_queues_of_several_files(self, store: MessageStore) -> None:
        sent = [b"%d" % n for n in range(3 * QUEUE_FILE // 20 + 5)]
        put(store, *sent)
        assert bodies(store) == sent
        assert store.get("T", 0, 8).next_offset == 10  # an answer ends with its queue's file
        assert store.queues() == {"T": [0]}

    def test_a_file_gone(self, store: MessageStore) -> None:
        put(store, *(b"x" * 1000 for _ in range(7)))
        store.files.delete_before(FILE)
        result = store.get("T", 0, 0, max_messages=1)
        assert (result.status, result.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 1)
        result = store.get("T", 0, 1)
        assert (result.status, result.count) == (GetStatus.FOUND, 4)

    def test_by_physical_offset_and_queue_offset(self, store: MessageStore) -> None:
        made = store.append(draft(b"one"), 1)
        assert store.record_of("T", 0, 0) is None
        show(store)
        record = store.record_at(made.offset)
        assert record is not None
        assert record == store.record_of("T", 0, 0)
        for wrong in (made.offset + 1, made.end, -1, 10**12):
            assert store.record_at(wrong) is None

    def test_by_time(self, store: MessageStore) -> None:
        for time in (100, 200, 200, 300):
            put(store, b"m", now_ms=time)
        lower = {99: 0, 100: 0, 101: 1, 200: 1, 201: 3, 300: 3, 301: 4}
        upper = {99: 0, 100: 0, 101: 0, 200: 2, 201: 2, 300: 3, 301: 3}
        assert {time: store.offset_by_time("T", 0, time) for time in lower} == lower
        assert {time: store.offset_by_time("T", 0, time, upper=True) for time in upper} == upper
        assert [store.store_time("T", 0, offset) for offset in (0, 3, 4)] == [100, 300, -1]

    def test_delayed_messages_carry_their_time(self, store: MessageStore) -> None:
        store.append(
            draft(b"later", topic=b"SCHEDULE_TOPIC_XXXX", queue_id=2, properties=b"DELAY\x013\x02TAGS\x01a\x02"), 5000
        )
        show(store)
        queue = store._queues.find("SCHEDULE_TOPIC_XXXX", 2)
        assert queue is not None
        unit = queue.unit(0)
        assert unit is not None
        assert unit[2] == 5000 + 10_000

    def test_a_deleted_topic(self, store: MessageStore) -> None:
        put(store, b"1")
        store.delete_topic("T")
        assert (store.queues(), store.queue_bounds("T", 0)) == ({}, (0, 0))
        put(store, b"2")
        assert (bodies(store), store.queue_bounds("T", 0)) == ([b"2"], (0, 1))


class TestReopen:
    def test_after_an_orderly_stop(self, tmp_path: Path) -> None:
        store, first = opened(tmp_path)
        assert first.clean
        sent = [b"%d" % n * 50 for n in range(60)]
        put(store, *sent)
        end = store.max_offset
        store.close()
        assert not (tmp_path / "abort").exists()
        store, found = opened(tmp_path)
        assert (found.clean, found.max_offset, found.confirm_offset, found.cut) == (True, end, end, -1)
        assert bodies(store) == sent
        put(store, b"next")
        assert bodies(store) == [*sent, b"next"]

    def test_after_a_kill(self, tmp_path: Path) -> None:
        store, _ = opened(tmp_path)
        sent = [b"%d" % n * 50 for n in range(60)]
        put(store, *sent)
        store.append(draft(b"unconfirmed"), 1)
        confirm, end = store.confirm_offset, store.max_offset
        abandon(store)
        store, found = opened(tmp_path)
        assert (found.clean, found.max_offset, found.confirm_offset) == (False, end, confirm)
        assert bodies(store) == sent
        assert store.cut_tail() == end
        assert store.next_queue_offset("T", 0) == 61
        put(store, b"next")
        assert bodies(store) == [*sent, b"unconfirmed", b"next"]

    def test_one_broker_at_a_time(self, tmp_path: Path) -> None:
        store, _ = opened(tmp_path)
        pid = os.fork()  # Java's kind of lock belongs to a process
        if pid == 0:
            store.writer.release()
            try:
                opened(tmp_path)
            except StoreInUseError:
                os._exit(0)
            finally:
                os._exit(1)
        store.writer.release()
        assert os.waitpid(pid, 0)[1] == 0

    def test_another_place_for_the_log(self, tmp_path: Path) -> None:
        store, _ = opened(tmp_path / "root", commit_log=tmp_path / "disk2" / "log")
        put(store, b"1")
        assert [path.name for path in (tmp_path / "disk2" / "log").iterdir()] == [f"{0:020d}"]
        assert not (tmp_path / "root" / "commitlog").exists()
        store.close()
        store, _ = opened(tmp_path / "root", commit_log=tmp_path / "disk2" / "log")
        assert bodies(store) == [b"1"]


def refuse_names(monkeypatch: pytest.MonkeyPatch, call: str, below: Path) -> None:
    """The file system has no room for another name (a full folder, no inodes left)."""
    real = getattr(os, call)

    def refuse(path: str | Path, *args: int, **names: int) -> int:
        if Path(path).is_relative_to(below) and (call == "mkdir" or args[0] & os.O_CREAT):
            raise OSError(28, "No space left on device")
        return int(real(path, *args, **names) or 0)

    monkeypatch.setattr(os, call, refuse)


class TestFull:
    def test_no_room_for_the_next_file(self, store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
        put(store, *(b"x" * 1000 for _ in range(3)))
        end = store.max_offset

        def no_room(*_args: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", no_room)
        for _ in range(2):
            with pytest.raises(StoreFullError, match="free disk space"):
                store.append(draft(b"x" * 1000), 1)
        assert (store.max_offset, bool(store.refuses)) == (end, True)
        assert len(bodies(store)) == 3
        monkeypatch.undo()
        store.check_disk()
        assert store.refuses is None
        put(store, b"y" * 1000)
        assert bodies(store)[-1] == b"y" * 1000

    def test_no_room_in_consume_queues(self, store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
        put(store, b"1")
        for queue_id in (0, 1, 0):
            store.append(draft(b"2", queue_id=queue_id), 1)
        real = os.pwrite

        def no_room(handle: int, data: bytes, position: int) -> int:
            if position == 20:  # the second unit of queue 0
                raise OSError(28, "No space left on device")
            return real(handle, data, position)

        monkeypatch.setattr(os, "pwrite", no_room)
        with pytest.raises(StoreFullError):
            store.dispatch(store.max_offset)
        with pytest.raises(StoreFullError):
            store.append(draft(b"3"), 1)
        assert bodies(store) == [b"1"]
        monkeypatch.undo()
        store.check_disk()
        put(store, b"4")
        assert (bodies(store), bodies(store, queue_id=1)) == ([b"1", b"2", b"2", b"4"], [b"2"])

    @pytest.mark.parametrize("call", ["open", "mkdir"])
    def test_no_room_for_a_new_queue(
        self, store: MessageStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: str
    ) -> None:
        put(store, b"1")
        end = store.append(draft(b"2", topic=b"U"), 1).end
        refuse_names(monkeypatch, call, tmp_path / "consumequeue" / "U")
        with pytest.raises(StoreFullError, match="free disk space"):
            store.dispatch(end)
        assert store.refuses is not None
        monkeypatch.undo()
        assert store.dispatch(end) == {("U", 0)}

    def test_no_room_for_the_name_of_the_next_file(self, store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
        put(store, *(b"x" * 1000 for _ in range(3)))
        refuse_names(monkeypatch, "open", store.files.directory)
        with pytest.raises(StoreFullError, match="free disk space"):
            store.append(draft(b"x" * 1000), 1)
        store.writer.acquire()
        with pytest.raises(StoreFullError, match="free disk space"):
            store.files.preallocate_next()
        monkeypatch.undo()
        store.check_disk()
        put(store, b"y" * 1000)
        assert bodies(store)[-1] == b"y" * 1000

    def test_nearly_full(self, tmp_path: Path) -> None:
        store, _ = opened(tmp_path, disk_refuse_ratio=0.0)
        with pytest.raises(StoreFullError, match="diskSpaceWarningLevelRatio"):
            store.append(draft(b"1"), 1)


class TestRoles:
    def test_a_slave_dispatches_what_others_append(self, store: MessageStore, tmp_path: Path) -> None:
        log = bytearray()
        sent = [b"%d" % n * 40 for n in range(40)]
        put(store, *sent)
        for start in range(0, store.max_offset, 1000):
            size = min(1000, store.max_offset - start)
            left = store.files.read(start, size)
            log += left
            log += store.files.read(start + len(left), size - len(left)) if len(left) < size else b""
        slave, _ = opened(tmp_path / "slave")
        for start in range(0, len(log), 1000):  # slices as they come, not whole records
            slave.files.write(start, log[start : start + 1000])
            end = min(start + 1000, len(log))
            slave.extend(end, store.max_offset)
            assert slave.max_offset == end
            assert bodies(slave) == sent[: len(bodies(slave))]
        assert bodies(slave) == sent
        assert slave.cut_tail() == store.max_offset
        put(slave, b"as master")
        assert bodies(slave) == [*sent, b"as master"]

    def test_a_half_slice_is_cut_by_the_next_master(self, store: MessageStore, tmp_path: Path) -> None:
        ends = [store.append(draft(b"%d" % n * 100), 1).end for n in range(5)]
        slave, _ = opened(tmp_path / "slave")
        slave.files.write(0, store.files.read(0, ends[3] + 50))
        slave.extend(ends[3] + 50, ends[1])
        assert slave.cut_tail() == ends[3]
        assert not any(slave.files.read(ends[3], 100))
        assert slave.next_queue_offset("T", 0) == 4
        assert len(bodies(slave)) == 2
        made = slave.append(draft(b"new"), 1)
        assert (made.offset, made.queue_offset) == (ends[3], 4)
        show(slave)
        assert len(bodies(slave)) == 5

    def test_what_was_received_and_not_told(self, store: MessageStore, tmp_path: Path) -> None:
        ends = [store.append(draft(b"%d" % n * 100), 1).end for n in range(5)]
        slave, _ = opened(tmp_path / "slave")
        slave.files.write(0, store.files.read(0, ends[3] + 50))
        slave.writer.release()
        assert slave.find_end() == ends[3] == slave.max_offset  # nothing was told
        slave.extend(ends[2] + 10, ends[1])
        assert slave.find_end() == ends[3]
        assert any(slave.files.read(ends[3], 50))

    def test_truncation(self, store: MessageStore, tmp_path: Path) -> None:
        ends = [store.append(draft(b"%d" % n * 300, queue_id=n % 2), 1).end for n in range(30)]
        show(store)
        store.flush()
        for cut in (20, 11, 0):
            store.truncate(ends[cut])
            assert (store.max_offset, store.confirm_offset) == (ends[cut], ends[cut])
            assert store.dispatched_offset == ends[cut]
            assert sum(store.queue_bounds("T", queue_id)[1] for queue_id in (0, 1)) == cut + 1
            store.files.truncate(ends[cut])  # the sidecar
            store.extend(ends[cut], ends[cut])
        store.cut_tail()
        put(store, b"new")
        assert bodies(store) == [b"0" * 300, b"new"]

    def test_a_crash_between_truncation_of_queues_and_log(self, store: MessageStore, tmp_path: Path) -> None:
        ends = [store.append(draft(b"%d" % n * 300), 1).end for n in range(30)]
        show(store)
        store.flush()
        store.truncate(ends[7])
        abandon(store)
        store, found = opened(tmp_path)
        assert (found.max_offset, found.confirm_offset) == (ends[29], ends[7])
        assert len(bodies(store)) == 8

    def test_a_log_begun_anew_elsewhere(self, store: MessageStore, tmp_path: Path) -> None:
        put(store, *(b"x" * 1000 for _ in range(7)))
        slave, _ = opened(tmp_path / "slave")
        put(slave, b"old")
        slave.truncate(0)
        slave.files.truncate(0)
        (tmp_path / "slave" / "commitlog" / f"{0:020d}").unlink()
        slave.files.refresh()
        for start in range(FILE, store.max_offset, FILE):
            slave.files.write(start, store.files.read(start, min(FILE, store.max_offset - start)))
        slave.extend(store.max_offset, store.max_offset)
        assert (slave.min_offset, slave.queue_bounds("T", 0)) == (FILE, (3, 7))
        assert len(bodies(slave)) == 4
