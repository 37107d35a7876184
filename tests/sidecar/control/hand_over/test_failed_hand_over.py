"""Failed hand-overs, in virtual time: whatever is lost, killed or silent, which replica is master in the end, which one
accepts sends, and what the caller gets."""

import pytest

from rocketmq_formats.codes import RequestCode
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.replica_link import Hold, HoldKind
from rocketmq_sidecar.domain.actions import Request
from rocketmq_sidecar.domain.control.hand_over import HOLD_MOST, Outcome, Phase
from tests.sidecar.control.hand_over.hand_over_kit import is_designation, refuse_designations, settled
from tests.sidecar.world.controllers import CONTROLLERS
from tests.sidecar.world.node import Node
from tests.sidecar.world.world import STEP, others


def test_target_that_does_not_catch_up_costs_no_send() -> None:
    world = settled()
    master = world.master()
    target = others(world, master)[0]
    target.lags = True
    world.hand_over(master, target, seconds=1.0)
    world.run(0.9)
    assert world.master() is master, "no send is refused while it is behind"
    world.run(0.2)
    assert master.handed[-1].outcome == Outcome.FAILED
    assert Phase.CATCHING_UP in master.handed[-1].reason
    assert not any(isinstance(message, Hold) for message in master.told)


def test_target_killed_while_it_is_waited_for() -> None:
    world = settled()
    master = world.master()
    target = others(world, master)[0]
    target.lags = True
    world.hand_over(master, target)
    world.kill(target)
    world.run(0.2)
    assert master.handed[-1].outcome == Outcome.FAILED
    assert "no longer is in the SyncStateSet" in master.handed[-1].reason
    assert world.master() is master


def test_broker_that_does_not_answer() -> None:
    world = settled()
    master = world.master()
    assert master.broker is not None
    master.broker.deaf_to_holds = True
    world.hand_over(master)
    world.run(HOLD_MOST + STEP)
    assert master.handed[-1].outcome == Outcome.FAILED
    assert world.master() is master


@pytest.mark.parametrize("relaxed", [False, True])
def test_refused_by_the_controllers(relaxed: bool) -> None:
    world = settled(relaxed=relaxed)
    master = world.master()
    epoch = master.epochs[-1]
    refuse_designations(world)
    world.hand_over(master)
    world.run_until(lambda: bool(master.handed), seconds=1)
    assert master.handed[-1].outcome == Outcome.FAILED
    assert "not this one" in master.handed[-1].reason
    world.run_until(lambda: bool(world.accepting()), seconds=1)
    assert world.master() is master
    assert master.epochs[-1] == epoch, "the same mastership goes on"


@pytest.mark.parametrize("relaxed", [False, True])
def test_answer_lost_though_it_was_done(relaxed: bool) -> None:
    world = settled(relaxed=relaxed)
    master = world.master()
    world.controllers.lose = lambda _node, ask: is_designation(ask)
    world.notices_lost = True
    world.hand_over(master)
    world.run_until(world.in_order)
    assert world.master() is not master
    assert master.handed[-1].outcome == Outcome.ELECTED


@pytest.mark.parametrize("relaxed", [False, True])
def test_controllers_that_fall_silent(relaxed: bool) -> None:
    world = settled(relaxed=relaxed)
    master = world.master()
    world.controllers.deaf = set(CONTROLLERS)
    world.hand_over(master, seconds=1.0)
    world.run(1.1)
    assert master.handed[-1].outcome == Outcome.FAILED
    world.controllers.deaf = set()
    world.run_until(world.in_order)


def test_relaxed_accepts_nothing_before_it_is_certain_that_no_other_was_elected() -> None:
    world = settled(relaxed=True)
    master = world.master()
    lost: list[Request] = []

    def lose(_node: Node, ask: Request) -> bool:
        lost.append(ask)
        return ask.code is RequestCode.CONTROLLER_ELECT_MASTER

    refuse_designations(world)
    world.hand_over(master)
    world.controllers.lose = lose
    world.run_until(lambda: bool(master.handed), seconds=1)
    world.run(1.5)
    assert master.broker is not None
    assert (master.broker.role, master.broker.held) == ("master", HoldKind.HANDING_OVER), "no answer names it yet"
    assert any(not is_designation(ask) and ask.code is RequestCode.CONTROLLER_ELECT_MASTER for ask in lost)
    world.controllers.lose = lambda _node, _ask: False
    world.run_until(lambda: bool(world.accepting()), seconds=4)
    assert world.master() is master


def test_relaxed_finds_that_another_was_elected_in_the_end() -> None:
    world = settled(relaxed=True)
    master = world.master()
    held_back: list[Request] = []
    answer = world.controllers.answer

    def delayed(node: Node, ask: Request, now: float) -> RemotingCommand | None:
        if is_designation(ask):
            held_back.append(ask)
            return None
        return answer(node, ask, now)

    world.controllers.answer = delayed  # type: ignore[method-assign]
    world.hand_over(master, seconds=0.5)
    world.run(0.52)
    assert master.handed[-1].outcome == Outcome.FAILED
    answer(master, held_back[0], world.now)  # now it arrives
    world.run_until(world.in_order)


@pytest.mark.parametrize("relaxed", [False, True])
def test_sidecar_killed_before_every_step(relaxed: bool) -> None:
    for step in range(1, 60):
        world = settled(relaxed=relaxed)
        master = world.master()
        master.crash_at_step = master.steps + step
        world.hand_over(master)
        world.run(0.2)
        if not master.crashes:
            assert step > 5
            return
        world.run_until(world.in_order)
    raise AssertionError("it never ends")


@pytest.mark.parametrize("what", ["kill", "kill_broker", "cut_link", "reset_connections", "stop"])
@pytest.mark.parametrize("relaxed", [False, True])
def test_interrupted_while_nearing(what: str, relaxed: bool) -> None:
    world = settled(relaxed=relaxed)
    master = world.master()
    target = others(world, master)[0]
    target.lags = True
    world.hand_over(master, target, seconds=3.0)
    getattr(world, what)(master)
    if what != "kill":
        world.run_until(lambda: bool(master.handed), seconds=4)
        elected = what == "reset_connections" and not relaxed  # by the controllers, who took the reset for a death
        assert master.handed[-1].outcome == (Outcome.ELECTED if elected else Outcome.FAILED)
    world.run_until(lambda: bool(world.accepting()), seconds=10)
