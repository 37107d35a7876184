"""Whether a Java broker's log may lack what it acknowledged, as the sidecar beside it notes and sees: after a loss of
power, or with a log that is shorter than it was."""

from pathlib import Path

import pytest

from rocketmq_formats.remoting.controller import EpochEntry
from rocketmq_formats.store.given_up import FILE_NAME
from rocketmq_formats.store.segment_names import ABORT
from rocketmq_sidecar.observer.observer import Observer
from tests.sidecar.observer.fakes import JavaGroup, Sidecar, keep_identity

pytestmark = pytest.mark.looptime


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Of broker 1, which runs."""
    keep_identity(tmp_path)
    (tmp_path / ABORT).write_text("7")
    return tmp_path


async def life(store: Path, group: JavaGroup, boot: str) -> Sidecar:
    """A sidecar that has looked once; the one before has died."""
    sidecar = Sidecar(store, group, boot=boot)
    await sidecar.poll()
    return sidecar


def unproven(observer: Observer) -> str | None:
    report = observer.unproven_report
    assert report is not None
    return report[1]


def slave_of_2(group: JavaGroup) -> None:
    group.brokers[1].role, group.brokers[2].role = "slave", "master"
    group.master_id, group.epoch, group.in_sync = 2, 2, frozenset({2, 3})
    group.brokers[2].epochs = (EpochEntry(epoch=2, start_offset=900),)


async def test_a_killed_broker_or_sidecar_has_lost_nothing(store: Path) -> None:
    group = JavaGroup()
    for _ in range(2):
        sidecar = await life(store, group, "first")
        assert unproven(sidecar.observer) is None


async def test_an_orderly_end_leaves_nothing_unproven(store: Path) -> None:
    group = JavaGroup()
    await life(store, group, "first")
    group.gone(1)
    (store / ABORT).unlink()
    sidecar = await life(store, group, "second")
    assert unproven(sidecar.observer) is None


async def test_without_a_store_nothing_is_reported(tmp_path: Path) -> None:
    sidecar = await life(tmp_path / "store", JavaGroup(), "first")
    assert sidecar.observer.unproven_report is None
    assert not (tmp_path / "store").exists()


async def test_after_a_reset_the_log_is_unproven_until_it_has_what_the_master_has(store: Path) -> None:
    group = JavaGroup()
    await life(store, group, "first")
    slave_of_2(group)
    group.brokers[1].end, group.brokers[2].end = 800, 1000
    sidecar = await life(store, group, "second")
    assert "lost power or was reset" in str(unproven(sidecar.observer))
    group.brokers[2].end = 2000
    for end, epochs, whole in (
        (1000, group.brokers[1].epochs, False),  # another master's bytes
        (999, group.brokers[2].epochs, False),
        (1000, group.brokers[2].epochs, True),
    ):
        group.brokers[1].end, group.brokers[1].epochs = end, epochs
        await sidecar.poll()
        assert (unproven(sidecar.observer) is None) is whole
    assert unproven((await life(store, group, "second")).observer) is None


async def test_an_unproven_log_stays_so_over_restarts(store: Path) -> None:
    group = JavaGroup()
    await life(store, group, "first")
    group.master_id = None
    await life(store, group, "second")
    (store / ABORT).unlink()
    sidecar = await life(store, group, "second")
    assert unproven(sidecar.observer) is not None
    assert "lost power or was reset" in str(sidecar.standing.unready)
    assert "lost power or was reset" in sidecar.get_replica().ready_reason


async def test_who_was_elected_has_everything(store: Path) -> None:
    group = JavaGroup()
    await life(store, group, "first")
    group.brokers[1].role = "slave"  # as the controllers recorded it, and not master in this life yet
    sidecar = await life(store, group, "second")
    assert unproven(sidecar.observer) is not None
    group.brokers[1].role = "master"
    group.silent = "no controller answers"
    await sidecar.poll()
    assert unproven(sidecar.observer) is not None
    group.silent = None
    await sidecar.poll()
    assert unproven(sidecar.observer) is None


async def test_a_log_that_ends_before_what_was_acknowledged_is_unproven(store: Path) -> None:
    group = JavaGroup()
    group.brokers[1].acks = (700, 990)
    await life(store, group, "first")
    group.brokers[1].role, group.master_id, group.brokers[1].end = "slave", None, 690
    sidecar = await life(store, group, "first")
    assert "messages up to 700 were acknowledged" in str(unproven(sidecar.observer))
    slave_of_2(group)
    group.brokers[1].epochs, group.brokers[2].end = group.brokers[2].epochs, 600  # elected by force: they are given up
    await sidecar.poll()
    assert unproven(sidecar.observer) is None
    assert unproven((await life(store, group, "first")).observer) is None


async def test_what_a_master_elected_without_it_lacks_is_noted(store: Path) -> None:
    group = JavaGroup()
    group.brokers[1].acks = (700, 990)
    sidecar = await life(store, group, "first")
    group.brokers[1].role, group.master_id, group.brokers[1].end = "slave", None, 650
    await sidecar.poll()
    assert sidecar.get_replica().remark == ""
    group.master_id, group.epoch = 1, 9
    group.brokers[1].role = "master"
    group.brokers[1].epochs = (*group.brokers[1].epochs, EpochEntry(epoch=9, start_offset=650))
    group.brokers[1].end = 2000  # sends were accepted before the sidecar saw it
    for boot in ("first", "second"):
        await sidecar.poll()
        assert "the acknowledged messages from 650 to 700 were given up when epoch 9 began" in (
            sidecar.get_replica().remark
        )
        sidecar = await life(store, group, boot)
    (store / FILE_NAME).unlink()
    assert sidecar.get_replica().remark == ""


async def test_an_emptied_store_is_unproven_before_the_broker_answers(store: Path) -> None:
    group = JavaGroup()
    group.brokers[1].acks = (700, 700)
    await life(store, group, "first")
    group.gone(1)
    (store / ABORT).unlink()
    sidecar = await life(store, group, "first")
    assert "this replica's log ends at 0, but messages up to 700" in str(unproven(sidecar.observer))


async def test_without_all_acknowledgements_nothing_was_promised(store: Path) -> None:
    group = JavaGroup()
    await life(store, group, "first")
    sidecar = Sidecar(store, group, boot="second", all_ack=False)
    await sidecar.poll()
    assert unproven(sidecar.observer) is None


async def test_without_its_files_a_log_is_unproven(store: Path) -> None:
    (store / ".broker.boot").mkdir()
    sidecar = await life(store, JavaGroup(), "first")
    assert sidecar.observer.unproven_report is None
    assert "cannot record" in str(sidecar.proof.unproven)
    (store / ".broker.boot").rmdir()
    await sidecar.poll()
    assert unproven(sidecar.observer) is None
