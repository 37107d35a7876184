"""Small stores for tests: files of a few records, messages told apart by their bodies."""

from pathlib import Path
from typing import Any

import msgspec

from rocketmq_formats.store.message import read_records
from rocketmq_store.log.whole_records import LogEnd
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import Appended, Draft, Recovered, StoreSettings
from rocketmq_store.queues.unit_repair import Repaired

FILE = 4096
QUEUE_FILE = 20 * 10


def settings(root: Path, **changes: Any) -> StoreSettings:
    """However full the machine's disk is."""
    values: dict[str, Any] = {"root": root, "file_size": FILE, "consume_queue_file_size": QUEUE_FILE}
    ratios = {"disk_refuse_ratio": 1.1, "disk_clean_ratio": 1.1, "disk_max_used_ratio": 110}
    return StoreSettings(**{**values, **ratios, **changes})


def opened(root: Path, **changes: Any) -> tuple[MessageStore, Recovered]:
    store = MessageStore(settings(root, **changes))
    store.writer.acquire()
    try:
        return store, store.open()
    except BaseException:
        store.writer.release()
        raise


def abandon(store: MessageStore) -> None:
    """What the kernel does for a process that was killed: mappings and files stay as they are, locks go."""
    store._checkpoint.close()
    store._queues.close()
    store.files.close()
    store.writer.release()
    store._root.unlock()


def other_boot(root: Path) -> None:
    """The machine reboots: whatever was not durable may have been lost with the power."""
    with (root / "checkpoint").open("r+b") as file:
        file.seek(96)
        file.write(bytes(36))


def draft(body: bytes, *, topic: bytes = b"T", queue_id: int = 0, **changes: Any) -> Draft:
    return Draft(topic=topic, queue_id=queue_id, body=body, **changes)


def append_zeros(store: MessageStore, made: Draft, zeros: int, now_ms: int = 1_000) -> Appended:
    """As an official master would have stored it: with so many zero bytes in a property, which ours refuse."""
    property_ = b"K\x01%b\x02"
    appended = store.append(msgspec.structs.replace(made, properties=property_ % (b"\x03" * zeros)), now_ms)
    store.files.read(appended.end - zeros - 1, zeros)[:] = bytes(zeros)
    return appended


def put(store: MessageStore, *bodies: bytes, topic: bytes = b"T", queue_id: int = 0, now_ms: int = 1_000) -> None:
    """Append and make visible."""
    for body in bodies:
        store.append(draft(body, topic=topic, queue_id=queue_id), now_ms)
    show(store)


def found_end(store: MessageStore) -> LogEnd:
    """What a broker reports to a new sidecar."""
    return list(store.find_end())[-1]


def dispatched(store: MessageStore, confirmed: int | None = None) -> set[tuple[str, int]]:
    """One step of showing what is confirmed, everything unless stated; returns the queues that have more."""
    store.confirm(store.max_offset if confirmed is None else confirmed)
    return store.dispatch()


def show(store: MessageStore) -> None:
    dispatched(store)
    while store.unfinished:
        store.dispatch()


def bodies(store: MessageStore, topic: str = "T", queue_id: int = 0, offset: int | None = None) -> list[bytes]:
    """All visible messages of a queue from `offset`."""
    found: list[bytes] = []
    offset = store.queue_bounds(topic, queue_id)[0] if offset is None else offset
    while (result := store.get(topic, queue_id, offset)).count:
        data = b"".join(result.records)
        records = read_records(data, check_crc=True)
        assert len(records) == result.count
        assert [record.queue_offset for record in records] == list(range(offset, result.next_offset))
        found += [bytes(record.body(data)) for record in records]
        offset = result.next_offset
    return found


def retain(store: MessageStore, now_ms: int, hour: int) -> int:
    """What the flusher does now and then."""
    offset = store.expired(now_ms, hour)
    if not offset:
        return store.min_offset
    for _ in store.forget_before(offset):
        pass
    store.files.deleter(offset)()
    return store.deleted()


def read_again(store: MessageStore, start: int = 0, end: int | None = None) -> list[Repaired]:
    """The log, as the broker's scrubber does it; which units were corrected."""
    repaired: list[Repaired] = []
    store.units.on_repaired = repaired.append
    check, visit = store.log_check(start, end), store.units.visit()
    while check.step():
        for record in store.units.differing(check.records):
            visit.mend(record)
    assert check.damage is None
    visit.finish()
    return repaired
