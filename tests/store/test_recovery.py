"""How a start handles files that a crash, Java, or a person left behind."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from rocketmq_formats.store.consume_queue import PRE_BLANK, UNIT_SIZE
from rocketmq_formats.store.message import read_records
from rocketmq_store.errors import NotWriterError, RecoveryInterruptedError, StoreDamagedError
from rocketmq_store.log import commit_log
from rocketmq_store.log.segment import Segment
from rocketmq_store.message_store import MessageStore
from rocketmq_store.queues import dispatch
from tests.paths import GOLDEN_FILES
from tests.store.kit import FILE, QUEUE_FILE, abandon, bodies, draft, opened, put, read_again, settings, show

GOLDEN = GOLDEN_FILES / "store"


def damage(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def log_file(root: Path, offset: int = 0) -> Path:
    return root / "commitlog" / f"{offset:020d}"


class TestTornTail:
    def test_what_is_behind_a_cut_never_comes_back(self, tmp_path: Path) -> None:
        store, _ = opened(tmp_path)
        ends = [store.append(draft(b"%04d" % n * 40), 1).end for n in range(8)]
        abandon(store)
        damage(log_file(tmp_path), ends[2] + 100, b"\xff")  # the body of the fourth
        store, found = opened(tmp_path)
        assert (found.max_offset, found.cut) == (ends[2], ends[2])
        store.append(draft(b"NEW!" * 40), 1)  # ends where the fifth begins
        abandon(store)
        store, found = opened(tmp_path)
        assert (found.max_offset, found.cut) == (ends[3], -1)
        show(store)
        assert bodies(store) == [*[b"%04d" % n * 40 for n in range(3)], b"NEW!" * 40]

    def test_a_record_must_say_where_it_is(self, tmp_path: Path) -> None:
        store, _ = opened(tmp_path)
        made = [store.append(draft(b"same size"), 1) for _ in range(4)]
        abandon(store)
        data = log_file(tmp_path).read_bytes()
        damage(log_file(tmp_path), made[2].offset, data[made[0].offset : made[0].end])
        assert opened(tmp_path)[1].max_offset == made[2].offset

    def test_a_tear_takes_the_following_files(self, tmp_path: Path) -> None:
        store, _ = opened(tmp_path)
        ends = [store.append(draft(b"x" * 1000), 1).end for n in range(10)]
        abandon(store)
        damage(log_file(tmp_path), ends[0] + 100, b"\xff")
        store, found = opened(tmp_path)
        assert (found.max_offset, store.files.file_starts) == (ends[0], [0])

    def test_a_blank_that_is_not_the_rest_of_its_file(self, tmp_path: Path) -> None:
        store, _ = opened(tmp_path)
        made = store.append(draft(b"1"), 1)
        abandon(store)
        damage(log_file(tmp_path), made.end, (100).to_bytes(4, "big") + b"\xcb\xd4\x31\x94")
        assert opened(tmp_path)[1].max_offset == made.end

    def test_units_lost_in_a_power_cut_are_made_again(self, tmp_path: Path) -> None:
        store, _ = opened(tmp_path)
        put(store, b"0", b"1")
        store.durability.flush()
        put(store, *(b"%d" % n for n in range(2, 9)))
        abandon(store)
        for unit in (3, 6, 7):
            damage(tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}", unit * UNIT_SIZE, bytes(UNIT_SIZE))
        store, _ = opened(tmp_path)
        assert bodies(store) == [b"%d" % n for n in range(9)]

    def test_only_the_writer_may_recover(self, tmp_path: Path) -> None:
        with pytest.raises(NotWriterError):
            MessageStore(settings(tmp_path)).open()
        assert not (tmp_path / "abort").exists()


class TestDamage:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        store, _ = opened(tmp_path)
        put(store, *(b"%02d" % n + b"x" * 300 for n in range(30)))
        store.close()
        return tmp_path

    @staticmethod
    def all_there(root: Path, *, confirmed: bool = True) -> MessageStore:
        store, _ = opened(root)
        if not confirmed:
            show(store)
        assert [body[:2] for body in bodies(store)] == [b"%02d" % n for n in range(30)]
        return store

    @pytest.mark.parametrize("content", [b"", b"short", bytes(4096), os.urandom(4096), b"\xff" * 4096, bytes(5000)])
    @pytest.mark.parametrize("clean", [True, False])
    def test_any_checkpoint(self, root: Path, content: bytes, clean: bool) -> None:
        (root / "checkpoint").write_bytes(content)
        if not clean:
            (root / "abort").touch()
        self.all_there(root, confirmed=False)

    def test_no_checkpoint(self, root: Path) -> None:
        (root / "checkpoint").unlink()
        (root / "abort").touch()
        self.all_there(root, confirmed=False)

    def test_no_consume_queues(self, root: Path) -> None:
        shutil.rmtree(root / "consumequeue")
        self.all_there(root)

    @pytest.mark.parametrize("length", [0, 7, UNIT_SIZE, QUEUE_FILE - 1])
    def test_a_short_consume_queue_after_a_crash(self, root: Path, length: int) -> None:
        os.truncate(root / "consumequeue" / "T" / "0" / f"{2 * QUEUE_FILE:020d}", length)
        (root / "abort").touch()
        (root / "checkpoint").write_bytes(bytes(4096))
        self.all_there(root, confirmed=False)

    def test_strangers_among_the_consume_queues(self, root: Path) -> None:
        (root / "consumequeue" / "notes").write_text("hello")
        (root / "consumequeue" / "T" / "x").mkdir()
        (root / "consumequeue" / "T" / "0" / "notes").touch()
        self.all_there(root)

    @pytest.mark.parametrize("name", ["lost+found", ".snapshot"])
    def test_folders_of_file_systems_are_not_looked_into(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        folder, listed = root / "consumequeue" / name, Path.iterdir
        folder.mkdir()

        def as_other_user(path: Path) -> Iterator[Path]:
            if path == folder:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return listed(path)

        monkeypatch.setattr(Path, "iterdir", as_other_user)
        self.all_there(root)

    def test_a_file_in_the_place_of_a_queue(self, root: Path) -> None:
        (root / "consumequeue" / "T" / "7").touch()
        self.all_there(root)

    def test_another_file_size(self, root: Path) -> None:
        with pytest.raises(StoreDamagedError, match="mappedFileSizeCommitLog"):
            opened(root, file_size=FILE * 2)
        with pytest.raises(StoreDamagedError, match="mappedFileSizeConsumeQueue"):
            opened(root, consume_queue_file_size=QUEUE_FILE // 2)
        self.all_there(root)

    def test_a_start_that_is_refused_changes_no_queue(self, root: Path) -> None:
        """Two queues with one file each are read before the one that has more."""
        store, _ = opened(root)
        for topic in (b"A", b"B"):
            store.append(draft(b"x", topic=topic), 1)
        abandon(store)
        with pytest.raises(StoreDamagedError, match="mappedFileSizeConsumeQueue"):
            opened(root, consume_queue_file_size=QUEUE_FILE * 2)
        self.all_there(root, confirmed=False)

    def test_a_gap_between_files(self, root: Path) -> None:
        log_file(root, FILE).unlink()
        for _ in range(2):  # and again: refused, not repaired into something else
            with pytest.raises(StoreDamagedError, match="put the missing files back"):
                opened(root)

    def test_no_log(self, root: Path) -> None:
        shutil.rmtree(root / "commitlog")
        store, found = opened(root)
        assert (found.max_offset, store.queues()) == (0, {})

    def test_the_first_files_expired(self, root: Path) -> None:
        log_file(root).unlink()
        store, found = opened(root)
        assert found.min_offset == FILE
        low, high = store.queue_bounds("T", 0)
        assert high == 30
        assert [body[:2] for body in bodies(store)] == [b"%02d" % n for n in range(low, 30)]
        abandon(store)
        shutil.rmtree(root / "consumequeue")  # made again: units for what is gone are blank
        store, _ = opened(root)
        assert store.queue_bounds("T", 0) == (low, high)
        first = min((root / "consumequeue" / "T" / "0").iterdir())
        blanks = low - int(first.name) // UNIT_SIZE
        assert first.read_bytes()[: blanks * UNIT_SIZE] == PRE_BLANK * blanks
        assert [body[:2] for body in bodies(store)] == [b"%02d" % n for n in range(low, 30)]


def golden(name: str, tmp_path: Path) -> Path:
    """A real broker's folder, each file as long as it was."""
    for file in json.loads((GOLDEN / "index.json").read_text())["files"]:
        if file["file"].startswith(f"{name}/"):
            path = tmp_path / file["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(GOLDEN / file["file"], path)
            os.truncate(path, file["size"])
    return tmp_path


class TestJava:
    """Folders of official brokers: tests/golden/store."""

    SIZES: ClassVar = {"file_size": 8192, "consume_queue_file_size": 600}

    @pytest.mark.parametrize("name", ["controlled", "alone"])
    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("anew", [True, False])
    def test_opened(self, tmp_path: Path, name: str, clean: bool, anew: bool) -> None:
        root = golden(name, tmp_path)
        (root / "abort").unlink(missing_ok=True)
        if not clean:
            (root / "abort").touch()
        queues = {path: path.read_bytes() for path in (root / "consumequeue").glob("*/*/*")}
        assert queues
        if anew:
            shutil.rmtree(root / "consumequeue")
        store, found = opened(root, **self.SIZES)
        assert (found.cut, found.clean) == (-1, clean)
        assert found.max_offset > 0
        show(store)
        # Java's consume queues byte for byte, whether kept or made by us
        assert {path: path.read_bytes() for path in queues} == queues
        assert set((root / "consumequeue").glob("*/*/*")) == set(queues)
        for topic, ids in store.queues().items():
            for queue_id in ids:
                assert bodies(store, topic, queue_id)
        assert read_again(store) == []

    def test_continued(self, tmp_path: Path) -> None:
        root = golden("controlled", tmp_path)
        store, found = opened(root, **self.SIZES)
        assert store.cut_tail() == found.max_offset
        before = store.next_queue_offset("Golden", 0)
        made = store.append(draft(b"ours", topic=b"Golden"), 1)
        assert (made.offset, made.queue_offset) == (found.max_offset, before)
        show(store)
        record = store.record_of("Golden", 0, before)
        assert record is not None
        (read,) = read_records(record, check_crc=True)
        assert read.body(record) == b"ours"
        assert read.store_timestamp > 1_700_000_000_000  # not before those that Java stored


def test_a_recovery_can_be_interrupted_at_any_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log, "CHECK_EVERY", 1)
    monkeypatch.setattr(dispatch, "MAX_SCAN", 3)
    store, _ = opened(tmp_path)
    put(store, *(b"%02d" % number for number in range(10)), topic=b"A")
    store.durability.flush()
    put(store, *(b"%02d" % number for number in range(20)), topic=b"B")
    for number in range(5):
        store.append(draft(b"unconfirmed %d" % number), 1)
    end = store.max_offset
    abandon(store)
    looks = 0
    while True:
        left = looks

        def interrupted() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        store = MessageStore(settings(tmp_path))
        store.writer.acquire()
        try:
            found = store.open(interrupted)
        except RecoveryInterruptedError:
            abandon(store)
            looks += 1
            continue
        break
    assert looks > 30, "topics, records, portions, and records that are not confirmed"
    assert found.max_offset == end
    assert len(bodies(store, "A")) == 10
    assert len(bodies(store, "B")) == 20
    store.close()


class TestSyncFailed:
    """A kernel that could not write a page may keep it as if it had: what the next start reads is not on disk."""

    def test_an_unclean_start_writes_the_tail_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store, _ = opened(tmp_path)
        put(store, *(b"%02d" % n + b"x" * 1000 for n in range(4)))
        store.durability.flush()
        durable = store.flushed_offset
        put(store, *(b"%02d" % n + b"x" * 1000 for n in range(4, 9)))
        end = store.max_offset
        abandon(store)
        path = tmp_path / "commitlog"
        before = {one.name: one.read_bytes() for one in path.iterdir()}
        written: list[tuple[int, int]] = []
        rewrite = Segment.rewrite

        def seen(segment: Segment, position: int, limit: int, check: Callable[[], None]) -> None:
            written.append((segment.start + position, segment.start + limit))
            rewrite(segment, position, limit, check)

        monkeypatch.setattr(Segment, "rewrite", seen)
        store, found = opened(tmp_path)
        assert (written[0][0], written[-1][1]) == (durable, end)
        assert sum(stop - start for start, stop in written) == end - durable
        assert found.max_offset == end == store.flushed_offset
        assert {one.name: one.read_bytes() for one in path.iterdir()} == before
        store.close()
        written.clear()
        opened(tmp_path)
        assert not written, "a clean stop has synced everything"
