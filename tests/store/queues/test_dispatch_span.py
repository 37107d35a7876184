"""How far out of order the units of a broker that died can be: no farther than `DISPATCH_SPAN` of the log."""

from pathlib import Path

import pytest

from rocketmq_store.message_store import MessageStore
from rocketmq_store.queues import dispatch
from tests.store.kit import abandon, bodies, dispatched, draft, opened

SPAN = 1000
SENT = [b"%03d" % number * 20 for number in range(60)]


@pytest.fixture(params=["just appended", "read from the log"])
def filled(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MessageStore:
    """Two queues of messages that are not visible yet."""
    monkeypatch.setattr(dispatch, "DISPATCH_SPAN", SPAN)
    store, _ = opened(tmp_path)
    for number, body in enumerate(SENT):
        store.append(draft(body, queue_id=number % 2), 1)
    if request.param == "read from the log":
        store.durability.flush()
        abandon(store)
        store, _ = opened(tmp_path)
    return store


def test_units_are_written_a_span_at_a_time(filled: MessageStore) -> None:
    end, before = filled.max_offset, filled.dispatched_offset
    largest = end // len(SENT) * 2
    steps = 0
    while before < end:
        dispatched(filled, end)
        now = filled.dispatched_offset
        assert before < now <= before + SPAN + largest
        assert filled.unfinished or now == end
        before, steps = now, steps + 1
    dispatched(filled, end)
    assert not filled.unfinished
    assert steps >= end // (SPAN + largest)
    assert [bodies(filled, queue_id=number) for number in range(2)] == [SENT[::2], SENT[1::2]]


def test_a_message_longer_than_the_span(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "DISPATCH_SPAN", SPAN)
    store, _ = opened(tmp_path)
    long = [b"x" * 3000, b"y" * 2000, b"z"]
    for body in long:
        store.append(draft(body), 1)
    for count in range(1, 4):
        dispatched(store)
        assert len(bodies(store)) == count
    assert not store.unfinished
