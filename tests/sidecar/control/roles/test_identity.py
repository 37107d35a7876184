"""A replica gets one id and keeps it, whatever crashes and whichever answer is lost (IdentityForever)."""

import errno
from pathlib import Path
from random import Random

import pytest

from rocketmq_formats.broker_identity import AppliedIdentity, BrokerIdentity, IdentityError
from rocketmq_formats.codes import RequestCode
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_sidecar.control.controllers_file import FILE_NAME as CONTROLLERS_FILE_NAME
from rocketmq_sidecar.control.meta_files import FILE_NAME, TEMPORARY_FILE_NAME, IdentityFiles, SavedIdentity
from rocketmq_sidecar.domain.actions import Request
from tests.sidecar.world.node import FOLDER
from tests.sidecar.world.world import World, settled
from tests.sim.disk import SimDisk

IDENTITY = BrokerIdentity("C", "broker-a", 1)
APPLIED = AppliedIdentity(IDENTITY, "10.0.0.1:10911;1")


def files(folder: Path) -> IdentityFiles:
    return IdentityFiles(folder, cluster_name="C", broker_name="broker-a")


def next_id(world: World) -> int:
    assert world.controllers.group is not None
    return int(world.controllers.group.next_broker_id)


def test_first_start_asks_in_the_order_of_the_document() -> None:
    world = World(nodes=1)
    world.start_all()
    world.run_until(world.in_order)
    asked = [code for code in world.nodes[0].asked if code is not RequestCode.CONTROLLER_GET_METADATA_INFO]
    assert asked[:4] == [
        RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
        RequestCode.CONTROLLER_APPLY_BROKER_ID,
        RequestCode.CONTROLLER_REGISTER_BROKER,
        RequestCode.CONTROLLER_ELECT_MASTER,
    ]


def test_later_starts_go_on_at_registration() -> None:
    world = World(nodes=1)
    (node,) = world.nodes
    world.start(node)
    world.run_until(world.in_order)
    world.kill(node)
    node.asked.clear()
    world.start(node)
    world.run_until(world.in_order)
    assert RequestCode.CONTROLLER_GET_NEXT_BROKER_ID not in node.asked
    assert RequestCode.CONTROLLER_APPLY_BROKER_ID not in node.asked


def test_an_emptied_volume_is_reported_with_the_id_that_was_there() -> None:
    world = settled()
    node = world.nodes[1]
    former = node.broker_id
    world.kill(node)
    node.disk = SimDisk()
    node.disk.mkdir(FOLDER)
    node.broker_lives -= 1  # it starts at the address that it had
    node.notes.clear()
    world.start(node)
    world.run_until(world.in_order)
    (note,) = [note for note in node.notes if "former_broker_ids" in note.values]
    assert note.level == "warning"
    assert (note.values["broker_id"], note.values["former_broker_ids"]) == (node.broker_id, str(former))
    assert node.broker_id != former
    world.kill(node)
    node.notes.clear()
    world.start(node)
    world.run_until(world.in_order)
    assert not [note for note in node.notes if "former_broker_ids" in note.values], "once"


def test_power_cut_inside_every_file_system_call_loses_no_identity_and_no_id() -> None:
    crashed_at = 0
    for call in range(1, 200):
        world = World(nodes=1, seed=call)
        (node,) = world.nodes
        node.disk.crash_at = node.disk.calls + call
        world.start_all()
        world.run_until(world.in_order)
        assert node.broker_id == 1
        assert next_id(world) == 2
        if not node.crashes:
            break
        crashed_at = call
    else:
        pytest.fail("the start never ends")
    assert crashed_at > 5, "the crashes were to hit the writing of both files"


def test_failing_disk_is_tried_again() -> None:
    for call in range(1, 60):
        world = World(nodes=1)
        (node,) = world.nodes
        world.start_sidecar(node)
        node.disk.fail_call(node.disk.calls + call, errno.ENOSPC)
        world.start_broker(node)
        world.run_until(world.in_order)
        assert (node.broker_id, next_id(world)) == (1, 2)


@pytest.mark.parametrize("number", range(6))
def test_lost_answer_costs_no_id(number: int) -> None:
    world = World(nodes=1)
    asked: list[Request] = []

    def lose(_node: object, ask: Request) -> bool:
        asked.append(ask)
        return len(asked) == number + 1

    world.controllers.lose = lose
    world.start_all()
    world.run_until(world.in_order)
    assert (world.nodes[0].broker_id, next_id(world)) == (1, 2)


def test_restart_at_another_address_keeps_the_id_and_registers_the_address() -> None:
    world = World()
    world.start_all()
    world.run_until(world.in_order)
    ids = [node.broker_id for node in world.nodes]
    for _ in range(3):
        for node in world.nodes:
            world.kill(node)
        world.start_all()
        world.run_until(world.in_order)
        assert [node.broker_id for node in world.nodes] == ids
        assert world.controllers.group is not None
        assert {replica.address for replica in world.controllers.group.replicas.values()} == {
            node.address for node in world.nodes
        }


def test_two_that_apply_for_the_same_id_get_two() -> None:
    world = World(nodes=2)
    world.start_all()
    world.run_until(world.in_order)
    assert sorted(node.broker_id for node in world.nodes) == [1, 2]
    assert next_id(world) == 3


def test_replica_unknown_to_the_controllers_reports_it_and_comes_back_with_their_data() -> None:
    world = World(nodes=1)
    (node,) = world.nodes
    world.start(node)
    world.run_until(world.in_order)
    kept, world.controllers.group = world.controllers.group, None
    world.run(6)
    assert node.machine is not None
    assert node.broker is not None
    assert node.broker.role == "none"
    trouble = node.machine.unready(world.now) or ""
    assert "move its store away" in trouble, "with its log but without its epochs it could not follow"
    assert "delete .broker.meta, epochFileCheckpoint and epochFileCheckpoint.bak of each" in trouble
    assert len([note for note in node.notes if note.level == "error"]) == 1, "said once"
    world.controllers.group = kept
    world.run_until(world.in_order)
    assert node.broker_id == 1


def test_controllers_before_5_1_1_are_named_as_the_reason() -> None:
    world = World(nodes=1)
    world.controllers.old = True
    world.start_all()
    world.run(5.0)
    (node,) = world.nodes
    assert node.machine is not None
    assert "older than RocketMQ 5.1.1" in (node.machine.unready(world.now) or "")
    lines = [line for line in node.notes if line.level == "error"]
    assert len(lines) == 1
    assert "older than RocketMQ 5.1.1" in str(lines[0].values["reason"])
    world.controllers.old = False
    world.run_until(world.in_order)


# The group of controllers


def registered_at(group: str | None, *, nodes: int = 1) -> World:
    """The controllers' group is on disk."""
    world = World(nodes=nodes)
    world.controllers.name = group
    world.start_all()
    world.run_until(lambda: world.in_order() and all(node.files().load().controllers == group for node in world.nodes))
    return world


def test_the_group_of_controllers_is_compared_after_a_restart() -> None:
    """Another group answers at the addresses that were given out again; it knows a group of this name, too."""
    world = registered_at("ours")
    (node,) = world.nodes
    world.kill(node)
    node.asked.clear()
    world.controllers.name = "theirs"
    world.start(node)
    world.run(20.0)
    assert set(node.asked) == {RequestCode.CONTROLLER_GET_METADATA_INFO}
    assert node.machine is not None
    unready = node.machine.unready(world.now) or ""
    assert "is of the controllers' group theirs, not of ours: correct controllerAddr; or" in unready
    assert "delete .controllers.meta" in unready
    assert [line.values["reason"] for line in node.notes if "another group" in line.text]
    world.controllers.name = "ours"
    world.run_until(world.in_order)


def test_an_operator_accepts_another_group_of_controllers() -> None:
    world = registered_at("ours")
    (node,) = world.nodes
    world.kill(node)
    world.controllers.name = "theirs"
    node.disk.unlink(FOLDER / CONTROLLERS_FILE_NAME)
    world.start(node)
    world.run_until(lambda: world.in_order() and node.files().load().controllers == "theirs")


def test_a_group_of_controllers_that_refuses_the_registration_is_not_kept() -> None:
    """A mistake in controllerAddr that is corrected leaves nothing behind."""
    world = registered_at(None)
    (node,) = world.nodes
    world.kill(node)
    known, world.controllers.group, world.controllers.name = world.controllers.group, None, "theirs"
    world.start(node)
    world.run(20.0)
    assert node.files().load().controllers is None
    world.kill(node)
    world.controllers.group, world.controllers.name = known, "ours"
    world.start(node)
    world.run_until(lambda: world.in_order() and node.files().load().controllers == "ours")


def test_power_cuts_and_failing_disks_lose_no_group_of_controllers() -> None:
    for call in range(1, 40):
        world = World(nodes=1)
        world.controllers.name = "ours"
        (node,) = world.nodes
        world.start_sidecar(node)
        if call % 2:
            node.disk.crash_at = node.disk.calls + call
        else:
            node.disk.fail_call(node.disk.calls + call, errno.ENOSPC)
        world.start_broker(node)
        world.run_until(world.in_order)
        world.run(3.0)
        node.disk.crash(Random(call))
        assert node.files().load().controllers == "ours"


def test_a_group_of_controllers_that_cannot_be_kept_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_files: IdentityFiles, _group: str) -> None:
        raise StorageError(FOLDER / CONTROLLERS_FILE_NAME, "no space left on device")

    monkeypatch.setattr(IdentityFiles, "save_controllers", full)
    world = World(nodes=1)
    world.controllers.name = "ours"
    (node,) = world.nodes
    world.start_all()
    world.run_until(world.in_order)
    world.run(60.0)
    assert node.machine is not None
    assert node.machine.unready(world.now) is None
    assert [note.text for note in node.notes].count("the controllers' group cannot be remembered for a restart") == 1
    monkeypatch.undo()
    world.run_until(lambda: node.files().load().controllers == "ours")


@pytest.mark.parametrize("text", [b"", b"\xff", b"x" * 256])
def test_a_damaged_file_of_the_controllers_is_refused_and_kept(tmp_path: Path, text: bytes) -> None:
    (tmp_path / CONTROLLERS_FILE_NAME).write_bytes(text)
    with pytest.raises(IdentityError, match=r"(?s)controllers\.meta is damaged.*Delete it"):
        files(tmp_path).load()
    assert (tmp_path / CONTROLLERS_FILE_NAME).read_bytes() == text


# The files


def test_files_round_trip(tmp_path: Path) -> None:
    files(tmp_path).save_applied(APPLIED)
    assert (tmp_path / TEMPORARY_FILE_NAME).read_bytes() == b"C#broker-a#1#10.0.0.1:10911;1"
    assert files(tmp_path).load() == SavedIdentity(None, APPLIED)
    files(tmp_path).save_identity(IDENTITY)
    assert (tmp_path / FILE_NAME).read_bytes() == b"C#broker-a#1"
    assert files(tmp_path).load() == SavedIdentity(IDENTITY, None)
    assert not (tmp_path / TEMPORARY_FILE_NAME).exists()


def test_crash_between_the_two_files_is_finished(tmp_path: Path) -> None:
    files(tmp_path).save_identity(IDENTITY)
    files(tmp_path).save_applied(APPLIED)
    assert files(tmp_path).load() == SavedIdentity(IDENTITY, None)
    assert not (tmp_path / TEMPORARY_FILE_NAME).exists()


def test_files_of_two_replicas_are_refused(tmp_path: Path) -> None:
    files(tmp_path).save_identity(BrokerIdentity("C", "broker-a", 2))
    files(tmp_path).save_applied(APPLIED)
    with pytest.raises(IdentityError, match="Delete the one that is not this replica's"):
        files(tmp_path).load()


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        (FILE_NAME, r"Restore it.*C#broker-a#brokerId.*move this replica's store away"),
        (TEMPORARY_FILE_NAME, "Delete it"),
        ("brokerIdentity", r"Restore it.*C#broker-a#brokerId.*move this replica's store away"),
    ],
)
@pytest.mark.parametrize("text", [b"", b"\0" * 40, b"C#broker-a", b"C#broker-a#x", b"\xff\xfe", b"C#broker-a#1#2#3#4"])
def test_damaged_file_is_refused_and_kept(tmp_path: Path, name: str, way_out: str, text: bytes) -> None:
    (tmp_path / name).write_bytes(text)
    with pytest.raises(IdentityError, match=f"(?s)damaged.*{way_out}"):
        files(tmp_path).load()
    assert (tmp_path / name).read_bytes() == text


@pytest.mark.parametrize("name", [FILE_NAME, "brokerIdentity"])
@pytest.mark.parametrize("text", [b"D#broker-a#1", b"C#broker-b#1"])
def test_foreign_file_is_refused(tmp_path: Path, name: str, text: bytes) -> None:
    (tmp_path / name).write_bytes(text)
    with pytest.raises(IdentityError, match=r"belongs to .* correct brokerClusterName"):
        files(tmp_path).load()


def test_identity_of_a_java_broker_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "brokerIdentity").write_bytes(b"C#broker-a#3")
    assert files(tmp_path).load() == SavedIdentity(BrokerIdentity("C", "broker-a", 3), None)
    assert (tmp_path / FILE_NAME).read_bytes() == b"C#broker-a#3"
    (tmp_path / "brokerIdentity").write_bytes(b"C#broker-a#4")
    assert files(tmp_path).load() == SavedIdentity(BrokerIdentity("C", "broker-a", 3), None), "ours counts from then on"
