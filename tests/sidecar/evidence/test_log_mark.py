"""The mark of how far a log reached: when it is written, lowered, missed; and what a damaged one says."""

from pathlib import Path

import pytest

from rocketmq_sidecar.evidence.log_mark import FILE_NAME, LogMark, LogMarkError
from rocketmq_sidecar.replication.replication import ReplicationError
from rocketmq_store.log_cut import LogCut
from tests.sidecar.replication.replica_kit import FILE_SIZE, Replica, replicas


def text(replica: Replica) -> str:
    return (replica.folder / FILE_NAME).read_text()


async def written(replica: Replica, offset: int) -> None:
    await replica.settled()
    assert text(replica) == f"{offset}\n"


async def in_sync(one: Replica, two: Replica) -> None:
    await two.follow(one, 1)
    await one.until(lambda: one.progress.in_sync == 2)


async def again(replica: Replica, *, identified: bool = True) -> str | None:
    """Another life of the sidecar; what it misses."""
    other = Replica(replica.folder, replica.broker_id)
    other.end = replica.end
    try:
        await other.replication.start()
        if identified:
            other.replication.set_broker_id(other.broker_id)
        return other.replication.open_log(other.said("127.0.0.1:1"))
    finally:
        await other.stop()


async def test_master_and_slave_mark_the_first_record_and_one_of_each_file(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        assert (text(one), text(two)) == ("0\n", "0\n")
        await one.lead(1, 1)
        first = one.append(b"first")
        await in_sync(one, two)
        one.append(b"second")
        await two.until(lambda: two.end == one.end)
        await written(one, first)
        await written(two, first)
        while one.end <= FILE_SIZE:
            last, end = one.end, one.append(b"x" * 10_000)
        assert last <= FILE_SIZE
        await two.until(lambda: two.end == one.end)
        await written(one, end)
        await written(two, end)


async def test_emptied_and_shortened_logs_are_missed(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1) as (one,):
        await one.lead(1, 1)
        while one.end <= FILE_SIZE:
            one.append(b"x" * 10_000)
        await one.settled()
    mark = one.end
    assert await again(one) is None
    one.end -= 1
    lost = await again(one)
    assert lost is not None
    assert f"this replica's log ends at {mark - 1}, but it reached {mark}" in lost
    assert f"write 0 into {one.folder / FILE_NAME}" in lost
    one.end = 0
    assert await again(one) is not None
    assert await again(one, identified=False) is not None
    assert text(one) == f"{mark}\n"
    (one.folder / FILE_NAME).write_text("0")
    assert await again(one) is None


async def test_an_id_without_log_and_mark_is_all_that_is_left(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1) as (one,):
        pass
    assert await again(one) is None
    (one.folder / FILE_NAME).unlink()
    lost = await again(one)
    assert lost is not None
    assert "its log is empty" in lost
    assert not (one.folder / FILE_NAME).exists()
    assert await again(one, identified=False) is None
    assert text(one) == "0\n"


async def test_a_store_of_before_the_mark_gets_one(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1) as (one,):
        await one.lead(1, 1)
        end = one.append(b"first")
    (one.folder / FILE_NAME).unlink()
    other = Replica(one.folder, 1)
    other.end = one.end
    await other.start()
    await written(other, end)
    await other.stop()


async def test_what_is_forgiven_is_missed_no_more(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1) as (one,):
        pass
    (one.folder / FILE_NAME).write_text("1000")
    other = Replica(one.folder, 1)
    await other.replication.start()
    other.replication.set_broker_id(1)
    assert other.replication.open_log(other.said("127.0.0.1:1")) is not None
    other.replication.accept_loss()
    await other.stop()
    assert text(other) == "0\n"
    assert await again(other) is None


async def test_the_mark_is_lowered_before_the_log_is_cut(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await two.lead(1, 1, 2)
        two.append(b"only here")
        await two.settled()
        assert int(text(two)) == two.end
        await one.lead(2, 1)
        await two.follow(one, 2)
        await two.until(lambda: two.end == 0)
        assert text(two) == "0\n"
        assert two.truncations == [0]


async def test_damaged(tmp_path: Path) -> None:
    for bad in (b"", b"-1", b"1\n2\n", b"9" * 20, b"many"):
        (tmp_path / FILE_NAME).write_bytes(bad)
        with pytest.raises(LogMarkError, match="is damaged"):
            LogMark(tmp_path / FILE_NAME).load()
        replica = Replica(tmp_path, 1)
        with pytest.raises(ReplicationError, match="is damaged"):
            await replica.replication.start()
        await replica.replication.stop()


def test_what_was_measured_before_the_log_was_cut_does_not_count(tmp_path: Path) -> None:
    mark = LogMark(tmp_path / FILE_NAME)
    mark.save(0)
    turn = mark.turn
    mark.lower(0)
    mark.write(500, turn)
    assert mark.offset == 0
    mark.write(500, mark.turn)
    mark.write(400, mark.turn)
    assert (mark.offset, mark.path.read_bytes()) == (500, b"500\n")


async def test_a_log_that_recovery_cut_is_missed_until_a_master_has_made_it_whole(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1) as (one,):
        pass
    LogCut(one.folder).write("the log was damaged at offset 7 and is cut there")
    for _ in range(2):
        lost = await again(one)
        assert lost is not None
        assert "damaged at offset 7" in lost
        assert f"delete {one.folder / '.log.cut'}" in lost
    other = Replica(one.folder, 1)
    await other.replication.start()
    other.replication.set_broker_id(1)
    assert other.replication.open_log(other.said("127.0.0.1:1")) is not None
    other.replication.accept_loss()
    await other.stop()
    assert await again(one) is None


async def test_a_loss_of_power_does_not_explain_a_log_that_recovery_cut(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1) as (one,):
        await one.lead(1, 1)
        one.append(b"first")
        await one.settled()
    (one.folder / ".broker.boot").write_text("running another\n")
    assert await again(one) is None
    LogCut(one.folder).write("the log was damaged")
    assert await again(one) is not None
