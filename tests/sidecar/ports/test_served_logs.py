"""What both kinds of sidecars say about their replica's log: out of replication, and out of a Java broker's files."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from rocketmq_api.log_view import LogView, SegmentRun
from rocketmq_commitlog.errors import SmallFileError
from rocketmq_formats.remoting.controller import EpochEntry
from rocketmq_formats.store.given_up import GivenUp
from rocketmq_formats.store.segment_names import segment_name
from rocketmq_runtime.config.settings import build_settings
from rocketmq_sidecar.control.agent import Agent
from rocketmq_sidecar.domain.control.role import BrokerState
from rocketmq_sidecar.domain.observing.verdict import Role, Standing
from rocketmq_sidecar.observer.observed_log import ObservedLog
from rocketmq_sidecar.observer.observer import Observer
from rocketmq_sidecar.ports.native_log import NativeLog
from rocketmq_sidecar.ports.served_log import LogUnknownError
from rocketmq_sidecar.settings import SidecarSettings
from tests.commitlog.kit import SEGMENT, Log, save_small
from tests.paths import GOLDEN_FILES

GOLDEN = GOLDEN_FILES / "store"


def settings(root: Path, **keys: str) -> SidecarSettings:
    names = {"brokerName": "a", "brokerClusterName": "C"}
    values = {**names, "controllerAddr": "127.0.0.1:1", "storePathRootDir": str(root)}
    return build_settings(SidecarSettings, {**values, **keys}).settings


def native(root: Path, *, file_size: int = SEGMENT, machine: object = None, **keys: str) -> NativeLog:
    replication = SimpleNamespace(
        file_size=file_size,
        min_offset=0,
        noted_offset=7000,
        max_offset=7777,
        epochs=(EpochEntry(1, 0, 100), EpochEntry(4, 100, 7777)),
        given_up=(GivenUp(start=100, end=300, epoch=4, at_millis=5),),
    )
    agent = SimpleNamespace(settings=settings(root, **keys), machine=machine, replication=replication)
    return NativeLog(cast("Agent", agent))


async def test_native_offsets_are_those_of_replication(tmp_path: Path) -> None:
    Log().fill(2).save(tmp_path, spare=1)
    save_small(tmp_path, confirmed=5, epochs=((9, 9),))
    session = SimpleNamespace(broker_id=2, group=SimpleNamespace(master_epoch=6))
    machine = SimpleNamespace(session=session, role=SimpleNamespace(broker=BrokerState.MASTER))
    assert await native(tmp_path, machine=machine).view() == LogView(
        cluster_name="C",
        broker_name="a",
        broker_id=2,
        master=True,
        master_epoch=6,
        min_offset=0,
        confirm_offset=7000,
        max_offset=7777,
        segment_size=SEGMENT,
        segments=(SegmentRun(0, 3),),
        epochs=((1, 0), (4, 100)),
        strict=True,
        given_up=((100, 300, 4, 5),),
    )


@pytest.mark.parametrize(
    ("keys", "strict"),
    [({"durability": "relaxed"}, False), ({"durability": "relaxed", "allAckInSyncStateSet": "true"}, True)],
)
async def test_before_there_is_a_machine(tmp_path: Path, keys: dict[str, str], strict: bool) -> None:
    Log().fill(1).save(tmp_path)
    view = await native(tmp_path, **keys).view()
    assert (view.broker_id, view.master, view.strict) == (None, False, strict)


async def test_files_that_expire_meanwhile(tmp_path: Path) -> None:
    Log().fill(2).save(tmp_path)
    (tmp_path / "commitlog" / segment_name(0)).unlink()
    view = await native(tmp_path).view()
    assert (view.min_offset, view.segments) == (SEGMENT, (SegmentRun(SEGMENT, 1),))


async def test_a_native_file_that_ends_early(tmp_path: Path) -> None:
    Log().fill(2).save(tmp_path)
    file = tmp_path / "commitlog" / segment_name(0)
    file.write_bytes(file.read_bytes()[:100])
    assert (await native(tmp_path).view()).short == ((0, 100),)


async def test_an_empty_native_log(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    view = await native(tmp_path).view()
    assert (view.min_offset, view.segment_size, view.segments) == (0, SEGMENT, ())


async def test_a_broker_that_has_sent_nothing(tmp_path: Path) -> None:
    with pytest.raises(LogUnknownError, match="broker"):
        await native(tmp_path, file_size=0).view()


def observed(root: Path, role: Role = Role.SLAVE) -> ObservedLog:
    observer = SimpleNamespace(
        settings=settings(root, brokerEngine="apache"),
        broker_id=1,
        standing=Standing(role, "", ready=True),
        group=SimpleNamespace(master_epoch=5),
    )
    return ObservedLog(cast("Observer", observer))


@pytest.mark.parametrize("role", [Role.MASTER, Role.SLAVE])
async def test_a_java_broker_s_files(role: Role) -> None:
    view = await observed(GOLDEN / "controlled", role).view()
    assert view == LogView(
        cluster_name="C",
        broker_name="a",
        broker_id=1,
        master=role is Role.MASTER,
        master_epoch=5,
        min_offset=0,
        confirm_offset=10530,
        max_offset=10760,
        segment_size=8192,
        segments=(SegmentRun(0, 2),),
        epochs=((1, 0), (5, 10530)),
        strict=False,
        short=((0, 7780), (8192, 2568)),  # the samples are kept without the zeros at a file's end
    )


async def test_a_java_broker_that_has_never_run(tmp_path: Path) -> None:
    with pytest.raises(LogUnknownError, match="commitlog"):
        await observed(tmp_path).view()


async def test_damaged_epochs_of_a_java_broker(tmp_path: Path) -> None:
    Log().fill(1).save(tmp_path)
    (tmp_path / "epochFileCheckpoint").write_bytes(b"?")
    with pytest.raises(SmallFileError):
        await observed(tmp_path).view()
