"""A wrong size hides no whole records and makes no record one that arrives; half a record is no damage, whatever is in
it."""

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_store.errors import LogDamagedError
from rocketmq_store.log import whole_records
from rocketmq_store.log.segment import Segment
from rocketmq_store.message_store import MessageStore
from tests.records import HOST, make_record
from tests.store.kit import FILE, abandon, found_end, opened

LARGE: Final = 1 << 20
"""A file's size, so that a record can claim more than topic and properties can have."""
HOST_V6: Final = bytes(range(16)) + HOST[4:]
SIZES: Final[dict[str, Callable[[int, int, int], int]]] = {
    "zero": lambda *_: 0,
    "negative": lambda *_: -1,
    "most negative": lambda *_: -(2**31),
    "no record's": lambda *_: 20,
    "smaller than a head": lambda *_: 80,
    "smaller": lambda size, *_: size - 1,
    "larger": lambda size, *_: size + 1,
    "into the next record": lambda size, *_: size + 100,
    "behind the data": lambda _, data, __: data + 30,
    "to the file's end": lambda _, __, file: file,
    "to the file's end, less a blank": lambda _, __, file: file - 8,
    "behind the file's end": lambda _, __, file: file + 1,
    "largest": lambda *_: 2**31 - 1,
}
"""By the right size, and the bytes left to the end of the data and of the file."""


def log_of(*bodies: bytes) -> tuple[bytes, list[int]]:
    """Records, and where each of them ends."""
    log, ends = b"", []
    for number, body in enumerate(bodies):
        log += make_record(len(log), body, queue_offset=number)
        ends.append(len(log))
    return log, ends


def slave_with(root: Path, log: bytes, confirmed: int, *, file_size: int = FILE) -> MessageStore:
    """`log` has arrived, all of it is reported."""
    store, _ = opened(root, file_size=file_size)
    store.files.write(0, log)
    store.extend(len(log), confirmed)
    return store


def claim(log: bytes, start: int, size: int) -> bytes:
    return log[:start] + size.to_bytes(4, "big", signed=True) + log[start + 4 :]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("file_size", [FILE, LARGE])
class TestAWrongSize:
    BODIES: Final = tuple(b"%d" % number * 100 for number in range(6))
    TORN: Final = b"a record that still arrives"

    def damaged(self, index: int, size: str, file_size: int, torn: int) -> tuple[bytes, int, list[int]]:
        """The log, where its damaged record is, and where its records end."""
        log, ends = log_of(*self.BODIES)
        start = ends[index] - 192
        log += make_record(ends[-1], self.TORN)[:torn]
        return claim(log, start, SIZES[size](192, len(log) - start, file_size - start)), start, ends

    @pytest.mark.parametrize("index", [0, 4])
    @pytest.mark.parametrize("torn", [0, 50])
    def test_with_whole_records_behind_it(
        self, tmp_path: Path, size: str, file_size: int, index: int, torn: int
    ) -> None:
        log, start, ends = self.damaged(index, size, file_size, torn)
        store = slave_with(tmp_path, log, ends[-1], file_size=file_size)
        assert store.is_damaged(start)
        store.dispatch()
        assert store.dispatch_stopped is not None
        assert store.dispatch_stopped.offset == start
        for confirmed in (0, ends[-1]):
            store.extend(len(log), confirmed)
            with pytest.raises(LogDamagedError, match=f"at offset {start} .* at {ends[index]} behind it"):
                store.cut_tail()
            offset, damage = found_end(store)
            assert offset == ends[-1]
            assert damage is not None
            assert damage.offset == start
            assert store.is_damaged(start)
        assert store.files.read(0, len(log)) == log
        abandon(store)
        store, found = opened(tmp_path, file_size=file_size)
        assert found.cut == start
        assert (tmp_path / f"commitlog.aside-{start}-{ends[-1]}").read_bytes() == log[start : ends[-1]]
        store.close()

    @pytest.mark.parametrize("torn", [0, 50])
    def test_of_the_last_record(self, tmp_path: Path, size: str, file_size: int, torn: int) -> None:
        """Where it is confirmed nothing is cut. Else it may be half a record, of which its writer has the rest."""
        log, start, ends = self.damaged(-1, size, file_size, torn)
        store = slave_with(tmp_path, log, ends[-1], file_size=file_size)
        store.dispatch()
        assert store.dispatch_stopped is not None
        assert store.dispatch_stopped.offset == start
        assert store.is_damaged(start)
        for _ in range(2):
            with pytest.raises(LogDamagedError, match=f"at offset {start} .* up to {ends[-1]} are confirmed"):
                store.cut_tail()
            assert found_end(store).offset == start
        assert store.files.read(0, len(log)) == log
        store.extend(len(log), start)
        assert found_end(store) == (start, None)
        assert store.cut_tail() == start
        store.close()


@settings(max_examples=100)
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=6),
    size=st.integers(-(2**31), 2**31 - 1) | st.integers(0, LARGE) | st.integers(0, 8000),
    torn=st.integers(0, 4000),
    data=st.data(),
)
def test_any_wrong_size(sizes: list[int], size: int, torn: int, data: st.DataObject) -> None:
    whole, ends = log_of(*map(bytes, sizes))
    index = data.draw(st.integers(0, len(ends) - 1))
    start = ends[index - 1] if index else 0
    log = claim(whole + make_record(ends[-1], b"x" * 4000)[:torn], start, size)
    if log.startswith(whole):
        return
    with tempfile.TemporaryDirectory() as folder:
        confirmed = data.draw(st.sampled_from([0, start, ends[index]]))
        store = slave_with(Path(folder), log, confirmed, file_size=LARGE)
        assert store.is_damaged(start)
        last = index == len(ends) - 1
        end, damage = found_end(store)
        assert (end, damage and damage.offset) == ((start, None) if last else (ends[-1], start))
        store.extend(len(log), confirmed)
        if last and confirmed <= start:
            assert store.cut_tail() == start
        else:
            with pytest.raises(LogDamagedError, match=f"at offset {start} "):
                store.cut_tail()
            assert store.files.read(0, len(log)) == log
        abandon(store)


@settings(max_examples=200)
@given(
    host=st.sampled_from([HOST, HOST_V6]),
    topic=st.sampled_from([b"T", b"t" * 200]),
    in_properties=st.booleans(),
    reached=st.integers(0, 1000),
)
def test_half_a_record_is_no_damage(*, host: bytes, topic: bytes, in_properties: bool, reached: int) -> None:
    """Not even if it contains what looks like a record of its place."""
    before, (start,) = log_of(b"first")

    def record_with(planted: bytes) -> bytes:
        body, value = (b"b" * 100, b"v" + planted) if in_properties else (b"b" * 100 + planted + b"b" * 100, b"v")
        properties = b"K\x01%b\x02" % value
        return make_record(start, body, topic=topic, queue_offset=1, host=host, properties=properties)

    where = record_with(b"planted").index(b"planted")
    record = record_with(make_record(start + where, b"looks whole"))
    log = before + record[: min(reached, len(record) - 1)]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        store = slave_with(root, log, len(log), file_size=LARGE)
        assert not store.is_damaged(start)
        store.dispatch()
        assert (store.dispatch_stopped, store.dispatched_offset) == (None, start)
        for announced in (start, len(log)):
            store.extend(announced, announced)
            assert found_end(store) == (start, None)
            assert store.cut_tail() == start
            store.files.write(start, log[start:])
        abandon(store)
        assert opened(root, file_size=LARGE)[1].max_offset == start
        assert not list(root.glob("commitlog.aside-*"))


class TestPortions:
    """A search holds the broker's loop for some milliseconds."""

    def test_of_whole_records(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(whole_records, "PORTION", 1000)
        log, ends = log_of(*[b"x" * 100] * 100)
        store = slave_with(tmp_path, log, 0, file_size=LARGE)
        reached = [0, *(end.offset for end in store.find_end())]
        assert reached[-1] == ends[-1]
        assert max(end - start for start, end in itertools.pairwise(reached)) < 1000 + 2 * 192

    def test_of_damage(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each place is searched little further than to the next whole record."""
        log, ends = log_of(*[b"x" * 1000] * 100)
        for end in ends[10:90:2]:
            log = claim(log, end, LARGE - end)
        store = slave_with(tmp_path, log, 0, file_size=LARGE)
        read: list[int] = []
        real = Segment.has_data

        def has_data(segment: Segment, position: int, limit: int) -> bool:
            read.append(limit - position)
            return real(segment, position, limit)

        monkeypatch.setattr(Segment, "has_data", has_data)
        search = store.find_end()
        assert [next(search).offset for _ in range(40)] == ends[10:90:2]
        assert len(read) < 40
        assert max(read) <= 64 * 1024
        assert list(search)[-1].offset == ends[-1]

    def test_of_what_is_no_record(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(whole_records, "_WINDOWS", 2)
        monkeypatch.setattr(whole_records, "_WINDOW", 1000)
        log, ends = log_of(b"x" * 100)
        store = slave_with(tmp_path, log + b"half a record", 0, file_size=LARGE)
        portions = list(store.find_end())
        assert len(portions) > LARGE / 2000 - 2
        assert set(portions) == {(ends[-1], None)}
