"""A store against a list: whatever is appended, confirmed, cut, killed or robbed of unsynced bytes, in any order."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rocketmq_formats.store.consume_queue import UNIT_SIZE, unpack_unit
from rocketmq_store.message_store import MessageStore
from tests.store.kit import abandon, append_zeros, bodies, dispatched, draft, opened, other_boot, show

BLOCK = 512
QUEUES = [("A", 0), ("A", 1), ("B", 0)]
PROPERTIES = [b"", b"K\x01v\x02", b"K\x01" + b"v" * 900 + b"\x02"]
queues = st.sampled_from(QUEUES)


class Message:
    def __init__(self, queue: tuple[str, int], body: bytes, start: int, end: int, *, odd: bool = False) -> None:
        self.queue = queue
        self.odd = odd
        self.body = body
        self.start = start
        self.end = end


class StoreModel(RuleBasedStateMachine):
    store: MessageStore

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.messages: list[Message] = []
        self.confirmed = 0
        self.count = 0
        self.store, _ = opened(self.root)
        self.synced_checkpoint = self.checkpoint()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            abandon(self.store)
            shutil.rmtree(self.root)

    def checkpoint(self) -> bytes:
        return (self.root / "checkpoint").read_bytes()

    def body(self, size: int) -> bytes:
        self.count += 1
        return b"%06d" % self.count + b"x" * size

    @property
    def end(self) -> int:
        return self.messages[-1].end if self.messages else 0

    # Master

    @rule(queue=queues, size=st.integers(0, 1500), properties=st.sampled_from(PROPERTIES))
    def append(self, queue: tuple[str, int], size: int, properties: bytes) -> None:
        body = self.body(size)
        made = self.store.append(
            draft(body, topic=queue[0].encode(), queue_id=queue[1], properties=properties), 1000 + self.count
        )
        self.messages.append(Message(queue, body, made.offset, made.end))

    @rule(queue=queues, size=st.integers(0, 500))
    def append_zeros(self, queue: tuple[str, int], size: int) -> None:
        body = self.body(size)
        sent = draft(body, topic=queue[0].encode(), queue_id=queue[1])
        made = append_zeros(self.store, sent, 1100, 1000 + self.count)
        self.messages.append(Message(queue, body, made.offset, made.end, odd=True))

    @rule(queue=queues, sizes=st.lists(st.integers(0, 300), min_size=1, max_size=6))
    def append_batch(self, queue: tuple[str, int], sizes: list[int]) -> None:
        sent = [self.body(size) for size in sizes]
        made = self.store.append_batch(
            [draft(body, topic=queue[0].encode(), queue_id=queue[1]) for body in sent], 1000 + self.count
        )
        start = made.offset
        for body in sent:
            size = 91 + len(queue[0]) + len(body)
            self.messages.append(Message(queue, body, start, start + size))
            start += size
        assert start == made.end

    @rule(part=st.floats(0, 1))
    def confirm(self, part: float) -> None:
        self.confirmed = max(self.confirmed, int(self.store.max_offset * part))
        dispatched(self.store, self.confirmed)

    @rule()
    def flush(self) -> None:
        self.store.durability.flush()
        self.synced_checkpoint = self.checkpoint()

    @rule()
    def sync_log(self) -> None:
        job = self.store.durability.log_job()
        job.run()
        job.conclude()

    # Cuts

    @rule(data=st.data(), how=st.sampled_from(["whole", "crash", "power cut"]))
    def cut(self, data: st.DataObject, how: str) -> None:
        keep = data.draw(st.integers(0, len(self.messages)))
        offset = self.messages[keep].start if keep < len(self.messages) else self.store.max_offset
        self.store.truncate(offset)
        self.synced_checkpoint = self.checkpoint()
        self.confirmed = min(self.confirmed, offset)
        if how == "whole":
            del self.messages[keep:]
            self.store.files.truncate(offset)
            self.store.extend(offset, self.confirmed)
            assert self.store.cut_tail() == offset
        elif how == "crash":
            self.kill()
        else:
            self.power_cut(data, 0)

    # Stops

    @rule()
    def stop(self) -> None:
        self.store.close()
        self.store, found = opened(self.root)
        assert found.clean
        self.reopened(found.max_offset, found.confirm_offset)

    @rule()
    def kill(self) -> None:
        abandon(self.store)
        self.store, found = opened(self.root)
        self.reopened(found.max_offset, found.confirm_offset)
        assert found.cut == -1

    @rule(data=st.data(), seed=st.integers(1, 2**16))
    def power_cut(self, data: st.DataObject, seed: int) -> None:
        flushed, recover_from = self.store.flushed_offset, max(self.store._checkpoint.recover_from, 0)
        random = data.draw(st.randoms(use_true_random=False))
        if data.draw(st.booleans()):
            (self.root / "checkpoint").write_bytes(self.synced_checkpoint)
        abandon(self.store)
        other_boot(self.root)
        for path in (self.root / "commitlog").iterdir():
            content = bytearray(path.read_bytes())
            for block in range(0, len(content), BLOCK):
                if int(path.name) + block >= flushed and random.random() < 0.3:
                    content[block : block + BLOCK] = bytes(BLOCK)
            path.write_bytes(content)
        for path in (self.root / "consumequeue").glob("*/*/*"):
            content = bytearray(path.read_bytes())
            for position in range(0, len(content), UNIT_SIZE):
                offset, size, _ = unpack_unit(content, position)
                if offset + size > recover_from and random.random() < 0.3:
                    content[position : position + UNIT_SIZE] = bytes(UNIT_SIZE)
            path.write_bytes(content)
        self.store, found = opened(self.root)
        # zeros at the very end may be the power's or the producer's, see torn_records.py
        odd = next((one for one in self.messages if one.end == flushed and one.odd), None)
        assert found.max_offset >= (flushed if odd is None else odd.start)
        self.messages = [message for message in self.messages if message.end <= found.max_offset]
        self.confirmed = found.confirm_offset
        self.reopened(found.max_offset, found.confirm_offset)

    def reopened(self, end: int, confirm: int) -> None:
        self.synced_checkpoint = self.checkpoint()  # a store that opens makes what it found durable
        assert self.store.max_offset == end
        assert end == self.end or (not any(m.end > end for m in self.messages) and end % 4096 == 0)
        assert confirm == min(self.confirmed, end)
        assert self.store.cut_tail() == end
        dispatched(self.store, self.confirmed)

    @invariant()
    def visible_is_what_was_confirmed(self) -> None:
        if not hasattr(self, "store"):
            return
        assert not self.store.unfinished
        for topic, queue_id in QUEUES:
            there = [message for message in self.messages if message.queue == (topic, queue_id)]
            visible = [message.body for message in there if message.end <= self.confirmed]
            assert bodies(self.store, topic, queue_id) == visible
            assert self.store.next_queue_offset(topic, queue_id) == len(there)


StoreModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestStoreModel = StoreModel.TestCase


def test_show_is_idempotent(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.append(draft(b"1"), 1)
    show(store)
    store._dispatcher.restart(0)
    show(store)
    assert bodies(store) == [b"1"]
