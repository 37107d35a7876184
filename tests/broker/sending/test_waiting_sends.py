"""Waiting sends: answered in runs, in order, in time, and never PUT_OK without the copies."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from rocketmq_broker.domain.role import Durability, ReplicaRole
from rocketmq_broker.sending.waiting_sends import WaitingSends
from rocketmq_broker.traffic import Traffic
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, decode_frame
from rocketmq_formats.remoting.send_frames import encode_send_answer
from rocketmq_formats.replica_link import ANSWER_SECONDS, Replication
from rocketmq_runtime.remoting.server import Peer

pytestmark = pytest.mark.looptime


class Client:
    """Takes answers as a connection would."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, int]] = []
        self.last: RemotingCommand | None = None

    def answer_frame(self, frame: bytes) -> None:
        self.last = decode_frame(frame[4:])
        self.answers.append((self.last.opaque, self.last.code))

    def answer_frames(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            self.answer_frame(frame)


class Stage:
    def __init__(self, *, strict: bool = True, sync_flush: bool = False) -> None:
        self.traffic = Traffic()
        self.role = ReplicaRole(Durability(2, strict=strict))
        self.role.prepare(1)
        self.role.grant(1, 1000.0)
        self.client = Client()
        self.flushed = 0
        self.now = 0.0
        self.waiting = WaitingSends(
            self.role,
            slave_timeout_ms=3000,
            capacity=4,
            flushed_offset=(lambda: self.flushed) if sync_flush else None,
            flush_timeout_ms=5000,
            clock=lambda: self.now,
            traffic=self.traffic,
        )

    def add(self, *ends: int) -> None:
        for end in ends:
            frame = encode_send_answer(end, "id", 0, 0, None)
            self.waiting.add(end, cast("Peer", self.client), RemotingCommand(310, opaque=end), frame)

    def acknowledge(self, offset: int) -> None:
        self.role.replicated(Replication(1, offset, offset, 3))
        self.waiting.release()


async def test_one_word_of_the_replicas_releases_a_run() -> None:
    stage = Stage()
    stage.add(10, 20, 30)
    stage.acknowledge(20)
    assert stage.client.answers == [(10, 0), (20, 0)]
    stage.acknowledge(29)
    assert len(stage.client.answers) == 2
    stage.acknowledge(30)
    assert stage.client.answers[-1] == (30, 0)
    assert len(stage.waiting) == 0


async def test_full_at_its_capacity() -> None:
    stage = Stage()
    stage.add(1, 2, 3)
    assert not stage.waiting.full
    stage.add(4)
    assert stage.waiting.full


async def test_replicas_too_slow() -> None:
    stage = Stage()
    stage.add(10)
    await asyncio.sleep(1)
    stage.add(20)
    await asyncio.sleep(2.5)
    assert stage.client.answers == [(10, ResponseCode.FLUSH_SLAVE_TIMEOUT)]
    assert stage.client.last is not None
    assert (stage.client.last.ext_fields or {})["msgId"] == "id", "producers make a SendResult of it"
    stage.acknowledge(20)
    assert stage.client.answers[1:] == [(20, 0)]
    await asyncio.sleep(10)
    assert len(stage.client.answers) == 2


async def test_disk_too_slow() -> None:
    stage = Stage(sync_flush=True)
    stage.add(10)
    stage.acknowledge(10)
    await asyncio.sleep(4.9)
    assert stage.client.answers == []
    await asyncio.sleep(0.2)
    assert stage.client.answers == [(10, ResponseCode.FLUSH_DISK_TIMEOUT)]


async def test_an_answer_waits_for_replicas_and_disk() -> None:
    stage = Stage(sync_flush=True)
    stage.add(10, 20)
    stage.flushed = 20
    stage.waiting.release()
    assert stage.client.answers == []
    stage.acknowledge(10)
    assert stage.client.answers == [(10, 0)]
    stage.flushed = 15
    stage.acknowledge(20)
    assert stage.client.answers == [(10, 0)]
    stage.flushed = 20
    stage.waiting.release()
    assert stage.client.answers == [(10, 0), (20, 0)]


async def test_a_relaxed_answer_waits_for_the_lease() -> None:
    stage = Stage(strict=False)
    stage.add(10)
    stage.now = 1001.0
    stage.acknowledge(10)
    assert stage.client.answers == []
    stage.role.extend_lease(1, 2000.0)
    stage.waiting.release()
    assert stage.client.answers == [(10, 0)]


async def test_a_relaxed_answer_whose_lease_does_not_come_back() -> None:
    stage = Stage(strict=False)
    stage.add(10)
    stage.now = 1001.0
    stage.acknowledge(10)
    await asyncio.sleep(3.1)
    assert stage.client.answers == [(10, ResponseCode.FLUSH_SLAVE_TIMEOUT)]


async def test_all_fail_with_mastership() -> None:
    stage = Stage()
    stage.add(10, 20)
    stage.role.lose_role("for a test")
    stage.waiting.fail_all(ResponseCode.SERVICE_NOT_AVAILABLE, "gone")
    assert stage.client.answers == [(10, 14), (20, 14)]
    stage.waiting.release()
    assert len(stage.client.answers) == 2


async def test_draining() -> None:
    stage = Stage()
    assert await stage.waiting.drained(1000)
    stage.add(10)
    draining = asyncio.ensure_future(stage.waiting.drained(2000))
    await asyncio.sleep(1)
    stage.acknowledge(10)
    assert await draining
    stage.add(20)
    assert not await stage.waiting.drained(1000)


async def test_how_long_sends_waited_is_counted() -> None:
    stage = Stage()
    stage.add(10, 20)
    await asyncio.sleep(0.02)
    stage.add(30, 40)
    stage.acknowledge(30)
    counts = stage.traffic.counts
    assert counts.answers[ANSWER_SECONDS.index(0.025)] == 2
    assert counts.answers[0] == 1  # in no time
    assert sum(counts.answers) == 3
    assert counts.answer_seconds == pytest.approx(0.04)
    await asyncio.sleep(3.1)
    assert stage.traffic.counts.sends_timed_out == 1
    assert sum(stage.traffic.counts.answers) == 3
