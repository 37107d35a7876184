"""A master's messages into the log: fields, files, batches, what is refused."""

from pathlib import Path

import pytest

from rocketmq_formats.store.message import MAGIC_BLANK, read_records
from rocketmq_formats.store.message_id import decode_message_id
from rocketmq_store.errors import MessageIllegalError, NotWriterError, PropertiesSizeExceededError
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import Draft, GetStatus
from tests.store.kit import FILE, bodies, dispatched, draft, opened, put, show

V6 = bytes(15) + b"\1" + b"\0\0\0\1"


def test_fields_and_place(store: MessageStore) -> None:
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


def test_invisible_until_confirmed(store: MessageStore) -> None:
    ends = [store.append(draft(b"%d" % n), 1).end for n in range(3)]
    assert store.get("T", 0, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert dispatched(store, ends[1] + 5) == {("T", 0)}
    assert bodies(store) == [b"0", b"1"]
    assert (store.queue_bounds("T", 0), store.next_queue_offset("T", 0)) == ((0, 2), 3)
    assert dispatched(store, ends[1] + 5) == set()
    assert dispatched(store, ends[0]) == set()
    assert bodies(store) == [b"0", b"1"]


def test_a_full_file_ends_with_a_blank(store: MessageStore) -> None:
    size = store.append(draft(b"x" * 1000), 1).end
    fits = FILE - 2 * size - 8 - (size - 1000)
    store.append(draft(b"x" * 1000), 1)
    assert store.append(draft(b"x" * fits), 1).end == FILE - 8  # the smallest gap
    assert store.append(draft(b"next"), 1).offset == FILE
    blank = bytes(store.files.read(FILE - 8, 8))
    assert blank == (8).to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big")
    show(store)
    assert bodies(store)[-1] == b"next"


def test_one_byte_more_goes_into_the_next_file(store: MessageStore) -> None:
    size = store.append(draft(b"x" * 1000), 1).end
    store.append(draft(b"x" * 1000), 1)
    assert store.append(draft(b"x" * (FILE - 2 * size - 8 - (size - 1000) + 1)), 1).offset == FILE


def test_batches(store: MessageStore) -> None:
    put(store, b"before")
    made = store.append_batch([draft(b"a%d" % n) for n in range(4)], 50)
    assert (made.queue_offset, made.count, len(made.message_id.split(","))) == (1, 4, 4)
    big = store.append_batch([draft(b"x" * 1200) for _ in range(3)], 50)
    assert big.offset == FILE  # together in one file
    show(store)
    assert bodies(store) == [b"before", b"a0", b"a1", b"a2", b"a3", *[b"x" * 1200] * 3]


def test_batches_that_are_none(store: MessageStore) -> None:
    with pytest.raises(MessageIllegalError, match="one queue"):
        store.append_batch([draft(b"1"), draft(b"2", queue_id=1)], 1)
    with pytest.raises(MessageIllegalError, match="mappedFileSizeCommitLog"):
        store.append_batch([draft(b"x" * 1200) for _ in range(4)], 1)
    assert store.max_offset == 0


def test_a_batch_of_more_than_the_largest_message_and_its_allowance(tmp_path: Path) -> None:
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
def test_refused(tmp_path: Path, bad: Draft, error: type[Exception]) -> None:
    store, _ = opened(tmp_path, max_message_size=2000)
    with pytest.raises(error):
        store.append(bad, 1)
    assert (store.max_offset, store.queues()) == (0, {})
    put(store, b"good")
    assert bodies(store) == [b"good"]


def test_long_topics(store: MessageStore) -> None:
    topic = b"%RETRY%" + b"g" * 200
    put(store, b"v2", topic=topic)
    assert bodies(store, topic.decode()) == [b"v2"]


def test_half_transactions_go_into_no_queue(store: MessageStore) -> None:
    for sys_flag in (4, 12):
        assert store.append(draft(b"half", sys_flag=sys_flag), 1).queue_offset == 0
    store.append(draft(b"committed", sys_flag=8), 1)
    show(store)
    assert bodies(store) == [b"committed"]
    assert store.dispatched_offset == store.max_offset


def test_without_the_lock(store: MessageStore) -> None:
    put(store, b"1")
    store.writer.release()
    with pytest.raises(NotWriterError):
        store.append(draft(b"2"), 1)
    assert bodies(store) == [b"1"]
