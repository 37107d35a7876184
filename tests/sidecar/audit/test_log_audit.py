"""A slave compares its log with its master's and repairs what is damaged: real stores and sockets."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rocketmq_formats.replica_link import LogState
from rocketmq_formats.replication.audit import AuditRequest, Kind, encode_request
from rocketmq_formats.store.message import record_size
from rocketmq_sidecar.audit import audit_server
from rocketmq_sidecar.replication import audit_watch
from tests.sidecar.replication.replica_kit import FILE_SIZE, Replica, acknowledged, in_sync, replicas

pytestmark = pytest.mark.usefixtures("with_and_without_secret")

SIZE = record_size(1, 1000, 0)
PER_FILE = (FILE_SIZE - 8) // SIZE
IN_BODY = SIZE - 500


def offset_of(number: int) -> int:
    """Of the record with this number."""
    return number // PER_FILE * FILE_SIZE + number % PER_FILE * SIZE


def change(replica: Replica, offset: int, data: bytes = b"?") -> None:
    replica.files.refresh()
    segment = replica.files.segment_at(offset)
    os.pwrite(segment.fd, data, offset - segment.start)


async def filled(one: Replica, two: Replica, count: int = 3 * PER_FILE + 5, *, compares: bool = True) -> None:
    """Both have the same log, compared unless the test keeps the slave from it; the slave has let go."""
    await one.lead(1, 1)
    one.append(*(bytes([65 + number % 26]) * 1000 for number in range(count)))
    await in_sync(one, two)
    if compares:
        await compared(two)
    await two.replication.unfollow()
    await one.until(lambda: one.progress.in_sync == 1)


async def compared(slave: Replica) -> None:
    """Until the comparison of its present connection has ended."""
    task = slave.replication._audit_watch._comparing
    while task is None:
        await asyncio.sleep(0.001)
        task = slave.replication._audit_watch._comparing
    await asyncio.wait([task])


async def follows(one: Replica, two: Replica) -> None:
    await two.follow(one, 1)
    await one.until(lambda: one.progress.in_sync == 2)
    one.append(b"and one more")
    await acknowledged(one)


def zero(offset: int, size: int) -> Callable[[Replica], None]:
    return lambda replica: change(replica, offset, bytes(size))


DAMAGES: dict[str, tuple[Callable[[Replica], None], int]] = {
    "a flipped byte": (lambda replica: change(replica, offset_of(7) + IN_BODY), offset_of(7)),
    "the log's first record": (lambda replica: change(replica, IN_BODY), 0),
    "a length": (lambda replica: change(replica, offset_of(9), b"\x7f"), offset_of(9)),
    "a magic": (lambda replica: change(replica, offset_of(PER_FILE + 3) + 4, b"\0"), offset_of(PER_FILE + 3)),
    "whole records, and parts of two": (zero(offset_of(20) + 300, 5 * SIZE), offset_of(20)),
    "the blank of a file": (
        lambda replica: change(replica, PER_FILE * SIZE, bytes(8)),
        PER_FILE * SIZE,
    ),
    "a whole file": (zero(FILE_SIZE, FILE_SIZE), FILE_SIZE),
}


@pytest.mark.parametrize("name", DAMAGES)
async def test_what_differs_here_and_is_whole_at_the_master_is_copied_again(tmp_path: Path, name: str) -> None:
    damage, place = DAMAGES[name]
    async with replicas(tmp_path, 2) as (one, two):
        await filled(one, two)
        damage(two)
        assert two.log() != one.log()
        await two.follow(one, 1)
        await two.until(lambda: bool(two.repaired))
        assert two.repaired[0][0] == place
        await follows(one, two)
        await compared(two)
        assert two.log() == one.log()
        assert (one.suspected, two.suspected, one.repaired) == ([], [], [])
        assert two.troubles == []
        assert two.truncations == []


@pytest.mark.parametrize("after_the_last_file", [False, True])
async def test_the_end_of_the_log_is_compared_before_the_slave_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_the_last_file: bool
) -> None:
    """A power cut can leave what is whole by its checksum, and differs from the master's."""
    monkeypatch.setattr(audit_watch.AuditWatch, "caught_up", lambda _: None)
    place = offset_of(3 * PER_FILE + 2 if after_the_last_file else 3 * PER_FILE - 2)
    async with replicas(tmp_path, 2) as (one, two):
        await filled(one, two, compares=False)
        change(two, place + SIZE - 3, b"U")
        await two.follow(one, 1)
        await two.until(lambda: bool(two.troubles))
        assert f"differs from the master's at offset {place}" in str(two.troubles[0])
        assert one.progress.in_sync == 1


async def test_damage_at_the_end_of_the_log_is_repaired_before_the_slave_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_watch.AuditWatch, "caught_up", lambda _: None)
    async with replicas(tmp_path, 2) as (one, two):
        await filled(one, two, compares=False)
        for number in (3 * PER_FILE - 2, 3 * PER_FILE + 1, 3 * PER_FILE + 3):
            change(two, offset_of(number) + IN_BODY)
        await two.follow(one, 1)
        await one.until(lambda: one.progress.in_sync == 2)
        assert two.log() == one.log()


async def test_what_a_master_wrote_itself_needs_no_look_at_a_failover(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1) as (one,):
        assert not one.replication._audit_watch.audit.has_compared_first
        await one.lead(1, 1)
        assert one.replication._audit_watch.audit.has_compared_first


async def test_damage_that_the_broker_knows_is_repaired_before_anything_is_acknowledged(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await filled(one, two)
        change(two, offset_of(7) + IN_BODY)
        two.hello(LogState(damage=offset_of(7), reason="flipped"))
        await two.follow(one, 1)
        await one.until(lambda: one.progress.in_sync == 2)
        assert two.repaired == [(offset_of(7), offset_of(8))]
        assert two.log() == one.log()


async def test_damage_that_is_found_while_following_takes_the_slave_out_until_it_is_repaired(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await filled(one, two)
        await follows(one, two)
        await compared(two)
        for number in (7, 11):  # the broker looks on behind the first one
            change(two, offset_of(number) + IN_BODY)
            two.replication.log_state(LogState(damage=offset_of(number), reason="flipped"))
            await one.until(lambda: one.progress.in_sync == 1)
            await one.until(lambda: one.progress.in_sync == 2)
            assert two.repaired[-1] == (offset_of(number), offset_of(number + 1))
            two.replication.log_state(LogState())
        assert two.log() == one.log()


async def test_damage_that_is_no_longer_there_is_checked_again(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await filled(one, two)
        two.hello(LogState(damage=offset_of(7), reason="a disk's bad moment"))
        await follows(one, two)
        assert two.repaired == [(offset_of(7), offset_of(7))]


async def test_a_slave_whose_broker_has_stopped_dispatching_acknowledges_nothing_until_it_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes are the master's, so there is nothing to repair."""
    monkeypatch.setattr(audit_watch, "HOLD_FIRST", 0.01)
    async with replicas(tmp_path, 2) as (one, two):
        await filled(one, two)
        await follows(one, two)
        await compared(two)
        acked = one.progress.acked_offset
        two.replication.log_state(LogState(damage=offset_of(7), reason="no record", stopped=True))
        await one.until(lambda: one.progress.in_sync == 1)
        one.append(b"waits")
        await two.until(lambda: len(two.repaired) == 3)  # the broker tries again with each connection
        assert set(two.repaired) == {(offset_of(7), offset_of(7))}
        assert (one.progress.in_sync, one.progress.acked_offset) == (1, acked)
        two.replication.log_state(LogState())
        await one.until(lambda: one.progress.in_sync == 2)
        await acknowledged(one)


async def test_what_is_repaired_is_acknowledged_as_soon_as_the_broker_has_got_past_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_watch, "HOLD_FIRST", 1000)
    async with replicas(tmp_path, 2) as (one, two):
        await filled(one, two)
        change(two, offset_of(7) + IN_BODY)
        two.hello(LogState(damage=offset_of(7), reason="no record", stopped=True))
        await two.follow(one, 1)
        await two.until(lambda: two.repaired == [(offset_of(7), offset_of(8))])
        two.replication.log_state(LogState())
        await follows(one, two)
        assert two.log() == one.log()


async def test_a_slave_whose_master_has_the_same_damage_follows_it(tmp_path: Path) -> None:
    """Staying away would stop sends without need."""
    async with replicas(tmp_path, 2) as (one, two):
        await filled(one, two)
        for replica in (one, two):
            change(replica, offset_of(7) + IN_BODY)
        two.hello(LogState(damage=offset_of(7), reason="no record", stopped=True))
        await follows(one, two)
        assert set(one.suspected) == {offset_of(7)}


@pytest.mark.parametrize("known", [False, True])
async def test_a_good_copy_is_not_overwritten_and_damage_is_reported_to_the_master(tmp_path: Path, known: bool) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await filled(one, two)
        whole_size = two.log()
        change(one, offset_of(7) + IN_BODY)
        two.replication._audit_watch.audit._compared.path.unlink()
        two.replication._audit_watch.audit.load()
        if known:
            two.replication._audit_watch.audit.places.add(offset_of(7))
        await two.follow(one, 1)
        await one.until(lambda: bool(one.suspected))
        assert set(one.suspected) == {offset_of(7)}
        await follows(one, two)
        assert (two.repaired, two.suspected) == ([], [])
        assert two.log()[: len(whole_size)] == whole_size
        assert two.troubles == []


async def test_where_both_are_damaged_nothing_is_changed_and_both_are_notified(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await filled(one, two)
        change(one, offset_of(7) + IN_BODY, b"!")
        change(two, offset_of(7) + IN_BODY, b"?")
        before = two.log()
        await follows(one, two)
        await compared(two)
        assert (set(one.suspected), set(two.suspected)) == ({offset_of(7)}, {offset_of(7)})
        assert two.log()[: len(before)] == before
        assert two.repaired == []


async def test_two_whole_records_that_differ_stop_the_slave_and_change_nothing(tmp_path: Path) -> None:
    topic = SIZE - 3
    async with replicas(tmp_path, 2) as (one, two):
        await filled(one, two)
        change(two, offset_of(7) + topic, b"U")  # no checksum covers it
        before = two.log()
        with capture_logs() as logs:
            await two.follow(one, 1)
            await two.until(lambda: bool(two.troubles))
            await asyncio.sleep(0.1)  # it tries again
        assert f"differs from the master's at offset {offset_of(7)}" in str(two.troubles[0])
        assert "rebuild" in str(two.troubles[0])
        assert not any(two.troubles[at] is None for at in range(len(two.troubles)))
        assert sum(entry["event"] == "cannot follow the master without an operator" for entry in logs) == 1
        await one.until(lambda: one.progress.in_sync == 1)
        assert two.log() == before
        assert (two.repaired, two.suspected, one.suspected) == ([], [], [])


async def test_what_was_compared_is_not_compared_again_unless_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[AuditRequest] = []
    answer = audit_server.AuditServer._answer

    async def counted(self: audit_server.AuditServer, folder: audit_server.LogFolder, ask: AuditRequest) -> bytes:
        asked.append(ask)
        return await answer(self, folder, ask)

    def before(end: int) -> list[int]:
        return [ask.offset for ask in asked if ask.offset < end]

    monkeypatch.setattr(audit_server.AuditServer, "_answer", counted)
    async with replicas(tmp_path, 2) as (one, two):
        await filled(one, two)
        end = offset_of(3 * PER_FILE + 5)
        asked.clear()
        two.replication._audit_watch.audit.load()  # as at a start
        two.replication._audit_watch.audit._compared._parts.clear()
        await follows(one, two)
        await compared(two)
        assert before(end) == [3 * FILE_SIZE], "the last file alone"
        await two.replication.unfollow()
        await one.until(lambda: one.progress.in_sync == 1)
        asked.clear()
        two.files.refresh()
        os.utime(two.files.segment_at(FILE_SIZE).path, ns=(1, 1))
        await follows(one, two)
        await compared(two)
        assert before(end) == [FILE_SIZE], "the last file from where the last comparison ended"


@pytest.mark.parametrize(
    "question",
    [
        encode_request(AuditRequest(Kind.READ, 0, 1 << 30)),
        encode_request(AuditRequest(Kind.DIGEST, -1, 5)),
        encode_request(AuditRequest(Kind.DAMAGED, 5, 1)),
        b"\0\0\0\x10\0\0\0\x09" + bytes(16),
    ],
)
async def test_questions_that_cannot_be_end_their_connection_and_nothing_else(tmp_path: Path, question: bytes) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await filled(one, two)
        await follows(one, two)
        follower = two.replication._follower
        assert follower is not None
        assert follower.connection is not None
        link = await two.replication._connector.open_audit_link(follower.connection, 1, follower, 2)
        with link:
            assert await link.digest(one.end, 1) is None
            assert await link.read(0, 100) == one.log()[:100]
            await asyncio.get_running_loop().sock_sendall(link._socket, question + bytes(16))
            with pytest.raises(ConnectionError):
                await link.read(0, 1)
        one.append(b"goes on")
        await acknowledged(one)


async def test_a_master_ends_the_oldest_of_too_many_connections_with_questions(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await filled(one, two)
        await follows(one, two)
        follower = two.replication._follower
        assert follower is not None
        assert follower.connection is not None
        links = []
        for _ in range(audit_server.MAX_CONNECTIONS + 1):
            links.append(await two.replication._connector.open_audit_link(follower.connection, 1, follower, 2))
            assert await links[-1].digest(0, 1) is not None
        with pytest.raises(ConnectionError):
            await links[0].digest(0, 1)
        await one.replication.resign()
        for link in links[1:]:
            with pytest.raises(ConnectionError):
                await link.digest(0, 1)
        for link in links:
            link.close()
