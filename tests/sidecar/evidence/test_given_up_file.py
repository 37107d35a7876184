"""What was acknowledged and is given up: noted before it is forgotten, kept, and removed by an operator alone."""

from pathlib import Path

import pytest

from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_formats.store.given_up import FILE_NAME, GivenUp, Missing
from rocketmq_sidecar.evidence.acked_offset_file import AckedOffsetFile
from rocketmq_sidecar.evidence.given_up_file import GivenUpFile, count_of, remark_of
from rocketmq_sidecar.evidence.log_proof import LogProof
from rocketmq_store.log_cut import LogCut
from tests.sidecar.replication.replica_kit import Replica, in_sync, replicas

BEFORE, AFTER = EpochList.of([(4, 0)]), EpochList.of([(4, 0), (5, 900)])
LOSS = GivenUp(start=900, end=1000, epoch=5, at_millis=7)


def life(folder: Path) -> LogProof:
    proof = LogProof(folder, strict=True, sync_flush=False, boot_id=lambda: "a")
    proof.begin()
    return proof


def test_a_loss_is_noted_and_outlives_processes_and_further_proofs(tmp_path: Path) -> None:
    proof = life(tmp_path)
    proof.acknowledged(1000, 0)
    proof.ends_at(900, BEFORE)
    assert proof.given_up.read().missing == Missing(end=1000, epoch=4, since=0)
    assert proof.give_up(900, AFTER, 5, 7) == LOSS
    proof.lower(900)
    proof.mark_proven()
    again = life(tmp_path)
    assert (again.acked, again.unproven) == (900, None)
    assert again.give_up(2000, AFTER, 5, 8) is None
    assert again.given_up.read().given_up == (LOSS,)


def test_what_comes_back_is_not_noted(tmp_path: Path) -> None:
    proof = life(tmp_path)
    proof.acknowledged(1000, 0)
    proof.ends_at(900, BEFORE)
    assert proof.give_up(1000, BEFORE, 4, 7) is None
    assert not (tmp_path / FILE_NAME).exists()


def test_epochs_of_the_lost_part_are_remembered_over_a_restart(tmp_path: Path) -> None:
    """The epoch file forgets them at the first start, and a master that has everything brings them back."""
    with_lost = EpochList.of([(3, 0), (4, 950)])
    proof = life(tmp_path)
    proof.acknowledged(1000, 0)
    proof.ends_at(900, with_lost)
    again = life(tmp_path)
    again.ends_at(900, EpochList.of([(3, 0)]))
    assert again.give_up(1000, with_lost, 4, 7) is None


def test_a_loss_that_cannot_be_noted_is_not_forgotten(tmp_path: Path) -> None:
    proof = life(tmp_path)
    proof.acknowledged(1000, 0)
    proof.ends_at(900, BEFORE)
    proof.give_up(900, AFTER, 5, 7)  # and the process dies
    again = life(tmp_path)
    again.ends_at(900, AFTER)
    assert again.unproven is not None
    assert again.give_up(900, EpochList.of([(4, 0), (6, 900)]), 6, 9) == GivenUp(
        start=900, end=1000, epoch=6, at_millis=9
    )


def test_a_damaged_note_is_put_aside_by_the_next_one(tmp_path: Path) -> None:
    note = GivenUpFile(tmp_path)
    note.path.write_bytes(b"no JSON")
    note.settle(LOSS)
    assert note.read().given_up == (LOSS,)
    assert [path.read_bytes() for path in tmp_path.glob("*.unread")] == [b"no JSON"]


def test_an_operator_deletes_it_at_any_time(tmp_path: Path) -> None:
    note = GivenUpFile(tmp_path)
    note.settle(LOSS)
    note.path.unlink()
    assert note.read().given_up == ()
    note.settle(None)
    note.settle(LOSS)
    assert note.read().given_up == (LOSS,)


def cut(replica: Replica, end: int) -> None:
    """Its log ends there, and nothing else shows it."""
    replica.files.refresh()
    image = replica.files.segment_at(0).view
    image[end:] = bytes(len(image) - end)
    replica.end = replica.confirm = replica.replication._log.max_offset = end
    replica.hello()


async def test_all_lose_their_tails_and_each_notes_what_it_had_acknowledged(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        first = one.append(b"first")
        end = one.append(b"second")
        await in_sync(one, two)
        await two.until(lambda: two.confirm == end)
        await two.replication.unfollow()
        await one.replication.resign()
        for replica in (one, two):
            cut(replica, first)
            assert replica.replication.unproven is not None
        await one.lead(2, 1, 2)
        loss = GivenUp(start=first, end=end, epoch=2, at_millis=2_000_000_000_000)
        assert one.replication.given_up == (loss,), "noted before anything is served"
        one.append(b"third, which is longer than the second")  # before the slave is there
        assert one.end > end
        one.replication.mark_proven()
        await two.follow(one, 2)
        await two.until(lambda: two.end == one.end)
        two.replication.mark_proven()
        for replica in (one, two):
            await replica.settled()
            assert replica.replication.given_up == (loss,)
            assert replica.replication.unproven is None
    assert GivenUpFile(tmp_path / "1").read().given_up == (loss,)


@pytest.mark.parametrize("longer", [1, 200])
async def test_one_that_lost_its_tail_alone_notes_nothing(tmp_path: Path, longer: int) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        first = one.append(b"first")
        end = one.append(b"second")
        await in_sync(one, two)
        await two.until(lambda: two.confirm == end)
        await two.replication.unfollow()
        cut(two, first)
        await one.lead(2, 1, 2)
        one.append(b"x" * longer)
        await two.follow(one, 2)
        await two.until(lambda: two.end == one.end)
        two.replication.mark_proven()
        await two.settled()
        assert two.replication.given_up == ()
        assert not (tmp_path / "2" / FILE_NAME).exists()
    note = AckedOffsetFile(tmp_path / "2" / ".broker.acked")
    note.open()
    assert note.offset >= end


async def forgave(one: Replica, two: Replica) -> tuple[int, int]:
    """Two messages are acknowledged; a recovery has cut the second one off at the slave, which is out of the set."""
    await one.lead(1, 1)
    first = one.append(b"first")
    end = one.append(b"second")
    await in_sync(one, two)
    await two.until(lambda: two.confirm == end)
    await two.replication.unfollow()
    LogCut(two.folder).write("the log was damaged there and is cut")
    cut(two, first)
    assert two.replication.unproven is None, "it must not be elected at all"
    two.replication.accept_loss()
    assert two.replication._log.acked == first
    return first, end


@pytest.mark.parametrize("dies", [False, True])
async def test_a_loss_that_the_group_continues_without_is_noted_before_the_number_is_lowered(
    tmp_path: Path, dies: bool
) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        first, end = await forgave(one, two)
        assert GivenUpFile(two.folder).missing() == Missing(end=end, epoch=1, since=0)
        if dies:
            two.hello()  # the next process opens the log, from which nothing seems to be missing
        await one.replication.resign()
        cut(one, first)
        await one.lead(2, 1, 2)
        one.append(b"third, which is longer than the second")
        await two.follow(one, 2)
        await two.until(lambda: two.end == one.end)
        await two.settled()
        loss = GivenUp(start=first, end=end, epoch=2, at_millis=2_000_000_000_000)
        assert two.replication.given_up == (loss,)
        assert GivenUpFile(two.folder).missing() is None


async def test_a_loss_that_the_master_makes_good_is_none(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await forgave(one, two)
        await two.follow(one, 1)
        await two.until(lambda: two.end == one.end)
        await two.settled()
        assert not (two.folder / FILE_NAME).exists()


def test_what_operators_are_told(tmp_path: Path) -> None:
    note = GivenUpFile(tmp_path)

    def noted() -> tuple[GivenUp, ...]:
        return note.read().given_up

    assert (remark_of(noted), count_of(noted)) == (None, 0)
    note.settle(LOSS)
    note.settle(LOSS)
    assert count_of(noted) == 2
    remark = str(remark_of(noted))
    assert remark.startswith("the acknowledged messages from 900 to 1000 were given up when epoch 5 began")
    assert "(the last of 2 losses)" in remark
    note.path.write_bytes(b"{")
    assert f"{FILE_NAME} cannot be read" in str(remark_of(noted))
    assert count_of(noted) == 1
