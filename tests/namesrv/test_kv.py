"""The KV configuration: its bounds, its file, and that a change is on disk before it is answered or seen."""

import asyncio
import itertools
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.errors import BodyError
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_namesrv.domain.kv import MAX_BYTES, MAX_ENTRIES, MAX_VALUE, KVTables
from rocketmq_namesrv.domain.model import MAX_NAME, InvalidRequestError, TableFullError
from rocketmq_namesrv.kv_store import MAX_WAITING, MAX_WAITING_OF_HOST, KVStore
from rocketmq_runtime.files.filesystem import StorageError
from tests.namesrv.namesrv_kit import Door


def full(value: str) -> KVTables:
    """Tables without room for another `value`."""
    tables = KVTables()
    for number in itertools.count():
        try:
            tables = tables.put("n", f"k{number}", value)
        except TableFullError:
            break
    return tables


class TestBounds:
    @pytest.mark.parametrize(
        ("namespace", "key", "value"),
        [("n" * (MAX_NAME + 1), "k", "v"), ("n", "k" * (MAX_NAME + 1), "v"), ("n", "k", "v" * (MAX_VALUE + 1))],
    )
    def test_long_texts(self, namespace: str, key: str, value: str) -> None:
        with pytest.raises(InvalidRequestError, match="longer than"):
            KVTables().put(namespace, key, value)

    def test_entries(self) -> None:
        tables, _ = KVTables.decode(
            json.dumps({"configTable": {"n": dict.fromkeys(map(str, range(MAX_ENTRIES - 1)), "")}}).encode()
        )
        with pytest.raises(TableFullError, match=f"{MAX_ENTRIES} entries"):
            tables.put("n", "one more", "")
        tables = tables.delete("n", "0").put("n", "another", "")
        assert tables.put("n", "another", "changed").get("n", "another") == "changed"

    @pytest.mark.parametrize("character", ["v", "ü", "\x00", '"'])
    def test_bytes_of_all_as_they_are_in_the_file(self, character: str) -> None:
        value = character * MAX_VALUE
        tables = full(value)
        written = len(tables.encode())
        assert MAX_BYTES - len(json.dumps(value, ensure_ascii=False).encode()) - 100 < written <= MAX_BYTES + 100
        with pytest.raises(TableFullError, match=f"{MAX_BYTES} bytes"):
            tables.put("another", "k", value)
        for less in (tables.put("n", "k0", ""), tables.delete("n", "k0")):
            assert less.put("another", "k", value).get("another", "k") == value

    def test_the_sizes_of_a_file_that_was_read_are_those_of_what_was_put(self) -> None:
        tables = KVTables().put("n", "k", "ü").put("m", "k", "v").delete("m", "k").put("n", "k", "w")
        assert KVTables.decode(tables.encode()) == (tables, [])

    def test_a_larger_file_only_shrinks(self) -> None:
        text = json.dumps({"configTable": {"n": {str(number): "v" * MAX_VALUE for number in range(130)}}})
        tables = KVTables.decode(text.encode())[0].delete("n", "0")
        with pytest.raises(TableFullError):
            tables.put("n", "0", "")

    def test_a_file_with_too_many_entries(self) -> None:
        names = dict.fromkeys(map(str, range(MAX_ENTRIES + 1)), "")
        with pytest.raises(BodyError, match="more than"):
            KVTables.decode(json.dumps({"configTable": {"n": names}}).encode())


class Disk:
    """Keeps what is written, and in which thread; fails on demand."""

    def __init__(self) -> None:
        self.written: list[dict[str, dict[str, str]]] = []
        self.threads: set[int] = set()
        self.fails = False
        self.before: Callable[[], None] = lambda: None

    def write(self, path: Path, data: bytes) -> None:
        self.before()
        self.threads.add(threading.get_ident())
        if self.fails:
            raise StorageError(path, "no room")
        self.written.append(json.loads(data)["configTable"])


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
async def store(tmp_path: Path, disk: Disk) -> KVStore:
    return KVStore(tmp_path / "kv.json", write=disk.write)


class TestWrites:
    async def test_many_changes_are_one_write_outside_of_the_event_loop(self, store: KVStore, disk: Disk) -> None:
        changes = [store.put("n", f"k{number}", "v", host="a") for number in range(MAX_WAITING_OF_HOST - 1)]
        changes.append(store.delete("n", "k0", host="a"))
        await asyncio.gather(*changes)
        assert [len(tables["n"]) for tables in disk.written] == [MAX_WAITING_OF_HOST - 2]
        assert threading.get_ident() not in disk.threads

    async def test_nothing_is_answered_or_seen_before_it_is_on_disk(self, store: KVStore, disk: Disk) -> None:
        seen: list[object] = []
        change = store.put("n", "k", "v", host="a")
        disk.before = lambda: seen.append((change.done(), store.tables.get("n", "k")))
        await change
        assert seen == [(False, None)]
        assert store.tables.get("n", "k") == "v"

    async def test_changes_during_a_write_are_the_next_write(self, store: KVStore, disk: Disk) -> None:
        loop, began, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def held() -> None:
            loop.call_soon_threadsafe(began.set)
            assert go_on.wait(60)

        disk.before = held
        first = store.put("n", "k", "1", host="a")
        await began.wait()
        later = [store.put("n", "k", "2", host="a"), store.put("n", "k", "3", host="a")]
        go_on.set()
        await asyncio.gather(first, *later)
        assert [tables["n"]["k"] for tables in disk.written] == ["1", "3"]

    @pytest.mark.filterwarnings("error")
    async def test_changes_are_answered_whatever_fails(self, store: KVStore, disk: Disk) -> None:
        def no_thread() -> None:
            raise RuntimeError("can't start new thread")

        disk.before = no_thread
        given_up = store.put("n", "a", "v", host="a")
        given_up.cancel()
        with pytest.raises(StorageError, match="can't start new thread"):
            await store.put("n", "b", "v", host="a")
        disk.before = lambda: None
        await store.put("n", "c", "v", host="a")
        assert disk.written == [{"n": {"c": "v"}}]

    async def test_what_fails_changes_nothing_and_the_next_one_is_written_again(
        self, store: KVStore, disk: Disk
    ) -> None:
        await store.put("n", "k", "v", host="a")
        disk.fails = True
        failed = await asyncio.gather(
            store.delete("n", "k", host="a"), store.put("n", "other", "v", host="a"), return_exceptions=True
        )
        assert [str(error) for error in failed] == [str(failed[0])] * 2
        assert isinstance(failed[0], StorageError)
        assert dict(store.tables.namespace("n") or {}) == {"k": "v"}
        disk.fails = False
        await store.put("n", "k", "v", host="a")
        assert disk.written == [{"n": {"k": "v"}}] * 2, "a failed write may have left the change in the file"

    async def test_no_change_is_no_write(self, store: KVStore, disk: Disk) -> None:
        await store.put("n", "k", "v", host="a")
        await store.put("n", "k", "v", host="a")
        await store.delete("n", "none", host="a")
        await store.delete("none", "k", host="a")
        assert len(disk.written) == 1

    async def test_those_that_wait_are_bounded_and_no_host_takes_all(self, store: KVStore) -> None:
        changes = [store.put("n", str(number), "v", host="a") for number in range(MAX_WAITING_OF_HOST)]
        with pytest.raises(TableFullError, match="wait"):
            store.put("n", "k", "v", host="a")
        changes += [
            store.put("n", f"{host} {number}", "v", host=str(host))
            for host in range(MAX_WAITING // MAX_WAITING_OF_HOST - 1)
            for number in range(MAX_WAITING_OF_HOST)
        ]
        with pytest.raises(TableFullError, match="wait"):
            store.put("n", "k", "v", host="another")
        await asyncio.gather(*changes)
        await store.put("n", "k", "v", host="a")


class TestRequests:
    async def test_a_pipelined_flood_is_a_few_writes(self, tmp_path: Path, disk: Disk) -> None:
        door = Door(tmp_path, write=disk.write)
        answers = [door.begin(100, {"namespace": "n", "key": str(k), "value": "v"}) for k in range(1000)]
        codes = [answer.code for answer in answers if isinstance(answer, RemotingCommand)]
        codes += [(await answer).code for answer in answers if isinstance(answer, asyncio.Future)]
        assert codes.count(ResponseCode.SUCCESS) == MAX_WAITING_OF_HOST
        assert codes.count(ResponseCode.SYSTEM_BUSY) == 1000 - MAX_WAITING_OF_HOST
        assert len(disk.written) == 1

    async def test_a_list_is_encoded_once(self, tmp_path: Path) -> None:
        door = Door(tmp_path)
        await door.told(100, {"namespace": "n", "key": "k", "value": "v"})
        first = door.ask(219, {"namespace": "n"}).body
        assert door.ask(219, {"namespace": "n"}).body is first
        await door.told(102, {"namespace": "n", "key": "k"})
        assert door.ask(219, {"namespace": "n"}).body == b'{"table":{}}'

    async def test_a_wiped_broker_stays_so_while_others_change(self, tmp_path: Path) -> None:
        """Its entry is not on disk yet when the change of another one is."""
        door = Door(tmp_path)
        door.registry.tables.wiped = frozenset({"waits"})
        await door.told(100, {"namespace": "ROCKETMQ_HA_WIPED_WRITE_PERM", "key": "other", "value": "true"})
        assert door.registry.tables.wiped == {"waits", "other"}
