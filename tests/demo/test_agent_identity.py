"""An agent gets one id and keeps it, whatever crashes and whichever answer is lost."""

from pathlib import Path

import pytest

from rocketmq_demo.agent.actions import Ask, ForgetApplied, SaveApplied
from rocketmq_demo.agent.files import IdentityFiles
from rocketmq_demo.agent.machine import AgentMachine
from rocketmq_demo.agent.settings import AgentSettings
from rocketmq_formats.broker_identity import AppliedIdentity, BrokerIdentity, IdentityError
from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import request, response
from rocketmq_formats.remoting.controller import GetMetaDataResponseHeader, GetNextBrokerIdResponseHeader
from tests.demo.agent_world import CLUSTER, NAME, World

IDENTITY = BrokerIdentity(CLUSTER, NAME, 1)
APPLIED = AppliedIdentity(IDENTITY, "10.0.0.1:10911;1")


def test_start_asks_in_the_order_of_rip_44() -> None:
    world = World(nodes=1)
    world.start_all()
    world.run_until(world.in_sync(*world.nodes))
    assert world.nodes[0].asked[:5] == [
        RequestCode.CONTROLLER_GET_METADATA_INFO,
        RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
        RequestCode.CONTROLLER_APPLY_BROKER_ID,
        RequestCode.CONTROLLER_REGISTER_BROKER,
        RequestCode.CONTROLLER_ELECT_MASTER,
    ]


def test_power_cut_inside_every_file_system_call_loses_no_identity_and_no_id() -> None:
    crashed_at = 0
    for call in range(1, 200):
        world = World(nodes=1)
        node = world.nodes[0]
        node.disk.crash_at = node.disk.calls + call
        world.start_all()
        world.run_until(world.in_sync(node))
        assert node.broker_id == 1
        assert world.group is not None
        assert world.group.next_broker_id == 2
        if not node.crashes:
            break
        crashed_at = call
    else:
        pytest.fail("the start never ends")
    assert crashed_at > 5, "the crashes were to hit the writing of both files"


@pytest.mark.parametrize("number", range(5))
def test_lost_answer_costs_no_id(number: int) -> None:
    world = World(nodes=1)
    asked: list[Ask] = []

    def lose(_node: object, ask: Ask) -> bool:
        asked.append(ask)
        return len(asked) == number + 1

    world.lose = lose
    world.start_all()
    world.run_until(world.in_sync(*world.nodes))
    world.run(1)
    assert world.nodes[0].broker_id == 1
    assert world.group is not None
    assert world.group.next_broker_id == 2


def test_restart_at_another_address_keeps_the_id() -> None:
    world = World()
    world.start_all()
    world.run_until(world.in_sync(*world.nodes))
    ids = [node.broker_id for node in world.nodes]
    for node in world.nodes:
        world.kill(node)
    world.start_all()
    world.run_until(world.in_sync(*world.nodes))
    assert [node.broker_id for node in world.nodes] == ids
    assert world.group is not None
    assert {replica.address for replica in world.group.replicas.values()} == {node.address for node in world.nodes}


def test_id_that_went_to_somebody_else_is_given_up() -> None:
    machine = AgentMachine(
        AgentSettings(cluster_name=CLUSTER, broker_name=NAME, address="10.0.0.1:10911", controllers=("c:1",)),
        identity=None,
        applied=APPLIED,
        check_code="10.0.0.1:10911;2",
        now=0.0,
    )
    (find,) = machine.on_tick(0.0)
    assert isinstance(find, Ask)
    leads = GetMetaDataResponseHeader(controller_leader_address="c:1")
    (apply,) = machine.on_answer(find, response(request(find.code), ResponseCode.SUCCESS, None, leads), 0.0)
    assert isinstance(apply, Ask)
    assert apply.code is RequestCode.CONTROLLER_APPLY_BROKER_ID
    refusal = response(request(apply.code), ResponseCode.CONTROLLER_BROKER_ID_INVALID)
    (forget,) = machine.on_answer(apply, refusal, 0.0)
    assert forget == ForgetApplied()
    assert isinstance(forget, ForgetApplied)
    (again,) = machine.on_stored(forget, 0.0)
    assert isinstance(again, Ask)
    assert again.code is RequestCode.CONTROLLER_GET_NEXT_BROKER_ID
    given = response(request(again.code), ResponseCode.SUCCESS, None, GetNextBrokerIdResponseHeader(next_broker_id=7))
    (save,) = machine.on_answer(again, given, 0.0)
    assert save == SaveApplied(AppliedIdentity(BrokerIdentity(CLUSTER, NAME, 7), "10.0.0.1:10911;2"))


def test_late_answer_is_not_taken_for_another() -> None:
    world = World(nodes=1)
    world.start_all()
    machine = world.nodes[0].machine
    assert machine is not None
    (find,) = machine.on_tick(world.now)
    assert isinstance(find, Ask)
    machine.on_answer(find, None, world.now)
    assert machine.on_answer(find, response(request(find.code), ResponseCode.SUCCESS), world.now) == ()


def test_folder_of_another_group_is_refused(tmp_path: Path) -> None:
    files = IdentityFiles(tmp_path)
    files.save_identity(IDENTITY)
    with pytest.raises(IdentityError, match="belongs to C#broker-a"):
        files.load(CLUSTER, "broker-b")


def test_identity_counts_when_both_files_are_there(tmp_path: Path) -> None:
    files = IdentityFiles(tmp_path)
    files.save_identity(IDENTITY)
    files.save_applied(AppliedIdentity(BrokerIdentity(CLUSTER, NAME, 2), "x;1"))
    identity, applied = files.load(CLUSTER, NAME)
    machine = AgentMachine(
        AgentSettings(cluster_name=CLUSTER, broker_name=NAME, address="10.0.0.1:10911", controllers=("c:1",)),
        identity=identity,
        applied=applied,
        check_code="y;2",
        now=0.0,
    )
    assert machine.identity == IDENTITY
