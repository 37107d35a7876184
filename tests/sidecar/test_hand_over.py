"""Hand-overs and fences in virtual time, under the controllers' real domain: who is master, who accepts, what an asker
is told, wherever it is interrupted."""

import pytest

from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, request, response
from rocketmq_formats.remoting.controller import ElectMasterRequestHeader, ElectMasterResponseHeader
from rocketmq_formats.replica_link import Hold, HoldKind
from rocketmq_sidecar.domain.actions import Ask, HandedOver, WatchLevel
from rocketmq_sidecar.domain.fence import Fence
from rocketmq_sidecar.domain.hand_over import HOLD_MOST, SETTLE, HandOver, Outcome, Phase, Situation
from tests.sidecar.world import STEP, World
from tests.sidecar.world_controllers import CONTROLLERS
from tests.sidecar.world_node import Node

FENCE = Fence("maintenance", 1_763_712_345_678)


def settled(nodes: int = 3, *, relaxed: bool = False) -> World:
    world = World(nodes, relaxed=relaxed)
    world.start_all()
    world.run_until(world.in_order)
    world.run(1)
    return world


def others(world: World, node: Node) -> list[Node]:
    return [one for one in world.nodes if one is not node]


def is_designation(ask: Ask) -> bool:
    return isinstance(ask.header, ElectMasterRequestHeader) and ask.header.designate_elect is True


def refuse_designations(world: World) -> None:
    """The controllers elect nobody who is named."""
    answer = world.controllers.answer

    def answered(node: Node, ask: Ask, now: float) -> RemotingCommand | None:
        if not is_designation(ask):
            return answer(node, ask, now)
        code = ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        return response(request(ask.code, ask.header), code, "not this one", ElectMasterResponseHeader())

    world.controllers.answer = answered  # type: ignore[method-assign]


# The way it goes


@pytest.mark.parametrize("relaxed", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_the_other_one_is_master_at_once(relaxed: bool, named: bool) -> None:
    world = settled(relaxed=relaxed)
    master = world.master()
    epoch = master.epochs[-1]
    target = others(world, master)[1]
    world.hand_over(master, target if named else None)
    successor = world.master()
    assert successor is (target if named else others(world, master)[0])
    assert [one.outcome for one in master.handed] == [Outcome.ELECTED]
    assert (master.handed[0].master_id, master.handed[0].master_epoch) == (successor.broker_id, epoch + 1)
    world.run_until(world.in_order)
    assert master.broker is not None
    assert master.broker.held is None, "as master again it would take sends"


@pytest.mark.parametrize("relaxed", [False, True])
def test_nobody_named_is_the_controllers_choice(relaxed: bool) -> None:
    world = World(3, relaxed=relaxed)
    world.nodes[2].priority = 1
    world.start_all()
    world.run_until(world.in_order)
    world.run(1)
    master = world.master()
    assert master is not world.nodes[2]
    world.hand_over(master)
    assert world.master() is world.nodes[2]


def test_who_is_preferred_and_lags_is_waited_for_a_moment_only() -> None:
    world = World(3, relaxed=True)
    world.nodes[2].priority = 1
    world.start_all()
    world.run_until(world.in_order)
    world.run(1)
    master = world.master()
    world.nodes[2].lags = True
    world.hand_over(master)
    world.run_until(lambda: bool(master.handed), seconds=2 * SETTLE)
    assert world.master() is world.nodes[1]


def test_there_and_back() -> None:
    world = settled(relaxed=True)
    first = world.master()
    second = others(world, first)[0]
    for here, there in ((first, second), (second, first), (first, second)):
        world.hand_over(here, there)
        assert world.master() is there
        world.run_until(world.in_order)


def test_to_oneself_is_done_already() -> None:
    world = settled()
    master = world.master()
    world.hand_over(master, master)
    assert master.handed[-1] == HandedOver(1, Outcome.ELECTED, "", master.broker_id, master.epochs[-1])
    assert world.master() is master


# Refused


def test_of_a_slave() -> None:
    world = settled()
    slave = others(world, world.master())[0]
    world.hand_over(slave)
    assert slave.handed[-1].outcome == Outcome.NOT_NOW
    assert f"the master is brokerId {world.master().broker_id}" in slave.handed[-1].reason


def test_nobody_to_hand_over_to() -> None:
    world = settled(1)
    world.hand_over(world.master())
    assert world.nodes[0].handed[-1].outcome == Outcome.NOT_NOW
    assert "nobody else" in world.nodes[0].handed[-1].reason


def test_target_not_in_sync() -> None:
    world = settled()
    master = world.master()
    target = others(world, master)[0]
    world.kill(target)
    world.run_until(world.in_order)
    assert master.machine is not None
    gone = 2 if target.number == 2 else target.number
    world._do(master, master.machine.on_hand_over(gone, 5.0, world.now))
    world._settle()
    assert master.handed[-1].outcome == Outcome.NOT_NOW
    assert "not in the SyncStateSet" in master.handed[-1].reason


def test_twice_at_once() -> None:
    world = settled()
    master = world.master()
    target = others(world, master)[0]
    target.lags = True
    world.hand_over(master, target)
    world.hand_over(master)
    assert [one.outcome for one in master.handed] == [Outcome.UNDER_WAY]
    world.catch_up(target)
    assert [one.outcome for one in master.handed] == [Outcome.UNDER_WAY, Outcome.ELECTED]


# Tried in vain


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
    assert Phase.NEARING in master.handed[-1].reason
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


def test_relaxed_accepts_nothing_before_it_is_certain_that_nobody_was_elected() -> None:
    world = settled(relaxed=True)
    master = world.master()
    lost: list[Ask] = []

    def lose(_node: Node, ask: Ask) -> bool:
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
    held_back: list[Ask] = []
    answer = world.controllers.answer

    def delayed(node: Node, ask: Ask, now: float) -> RemotingCommand | None:
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


# Orderly ends


def test_orderly_end_chooses_who_is_level() -> None:
    world = settled(relaxed=True)
    master = world.master()
    behind, level = others(world, master)
    behind.lags = True
    world.stop(master)
    assert world.master() is level


def test_orderly_end_of_the_last_one() -> None:
    world = settled(1)
    world.stop(world.master())
    assert not world.accepting()


# Fences


def test_fenced_master_stays_master_and_accepts_nothing() -> None:
    world = settled()
    master = world.master()
    epoch = master.epochs[-1]
    world.fence(master, FENCE)
    assert not world.accepting()
    world.run(10)
    assert master.broker is not None
    assert (master.broker.role, master.broker.epoch) == ("master", epoch), "no failover because of a fence"
    assert master.machine is not None
    assert master.machine.unready(world.now) is None
    world.fence(master, None)
    assert world.master() is master


def test_fenced_slave_stays_fenced_as_master() -> None:
    world = settled(2)
    master = world.master()
    (slave,) = others(world, master)
    world.fence(slave, FENCE)
    assert world.master() is master
    world.kill(master)
    world.run(1)
    assert slave.broker is not None
    assert (slave.broker.role, slave.broker.held) == ("master", HoldKind.FENCED)
    said = [type(message).__name__ for message in slave.told if type(message).__name__ in {"Hold", "Grant"}]
    assert said == ["Hold", "Grant"]


@pytest.mark.parametrize("what", ["kill", "kill_sidecar", "kill_broker", "cut_link"])
def test_fence_outlives_both_processes(what: str) -> None:
    world = settled(1)
    (node,) = world.nodes
    world.fence(node, FENCE)
    getattr(world, what)(node)
    if what in {"kill", "kill_sidecar"}:
        world.start_sidecar(node)
    if what in {"kill", "kill_broker"}:
        world.start_broker(node)
    for _ in range(200):
        world.run(STEP)
        assert not world.accepting()
    assert node.broker is not None
    assert (node.broker.role, node.broker.held) == ("master", HoldKind.FENCED)
    world.fence(node, None)
    assert world.master() is node


@pytest.mark.parametrize("relaxed", [False, True])
def test_fenced_master_can_hand_over(relaxed: bool) -> None:
    world = settled(relaxed=relaxed)
    master = world.master()
    world.fence(master, FENCE)
    world.hand_over(master)
    assert world.master() is not master
    world.run_until(world.in_order)
    assert master.broker is not None
    assert master.broker.held is HoldKind.FENCED


def test_hand_over_in_vain_does_not_end_a_fence() -> None:
    world = settled()
    master = world.master()
    world.fence(master, FENCE)
    refuse_designations(world)
    world.hand_over(master)
    world.run(3)
    assert master.handed[-1].outcome == Outcome.FAILED
    assert master.broker is not None
    assert (master.broker.role, master.broker.held) == ("master", HoldKind.FENCED)


# The machine alone: time-outs of each step


def situation(*, end: int | None = None, in_sync: frozenset[int] = frozenset({1, 2, 3})) -> Situation:
    return Situation(
        own_id=1, leads=True, epoch=7, master_id=1, in_sync=in_sync, controllers=True, end=end, refused=(0, "")
    )


def watch_of(actions: tuple[object, ...]) -> int:
    return next(one.watch for one in actions if isinstance(one, WatchLevel) and one.watch)


def outcome_of(actions: tuple[object, ...]) -> HandedOver | None:
    return next((one for one in actions if isinstance(one, HandedOver)), None)


def test_levelling_waits_for_the_target_and_a_moment_for_the_others() -> None:
    over = HandOver()
    begun = over.begin(2, 5.0, situation(), 0.0)
    over.on_level(watch_of(begun), frozenset({2}), acked=False)
    over.step(situation(), 0.1)
    assert over.phase is Phase.HOLDING
    watch = watch_of(over.step(situation(end=500), 0.2))
    over.on_level(watch, frozenset({3}), acked=False)
    assert over.step(situation(end=500), 0.3) == ()
    over.on_level(watch, frozenset({2, 3}), acked=False)
    over.step(situation(end=500), 0.4)
    assert (over.phase, over.wake_at) == (Phase.LEVELLING, 0.4 + SETTLE)
    over.step(situation(end=500), 0.4 + SETTLE)
    assert over.electing == (2,)


def test_level_of_an_earlier_watch_counts_for_nothing() -> None:
    over = HandOver()
    first = watch_of(over.begin(2, 5.0, situation(), 0.0))
    over.on_level(first, frozenset({2}), acked=True)
    over.step(situation(), 0.1)
    over.step(situation(end=500), 0.2)
    over.on_level(first, frozenset({2}), acked=True)
    over.step(situation(end=500), 0.3)
    assert over.phase is Phase.LEVELLING


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_time_out_of_each_step(steps: int) -> None:
    over = HandOver()
    watch = watch_of(over.begin(2, 1.0, situation(), 0.0))
    if steps > 0:
        over.on_level(watch, frozenset({2}), acked=True)
        over.step(situation(), 0.1)
    if steps > 1:
        watch = watch_of(over.step(situation(end=500), 0.2))
    if steps > 2:
        over.on_level(watch, frozenset({2}), acked=True)
        over.step(situation(end=500), 0.3)
    reached = over.phase
    assert reached is list(Phase)[steps + 1]
    ended = outcome_of(over.step(situation(end=500 if steps > 1 else None), 1.0))
    assert ended is not None
    assert ended.outcome == Outcome.FAILED
    assert reached in ended.reason
    assert not over.holds


def test_target_that_leaves_the_set_while_it_is_elected() -> None:
    over = HandOver()
    watch = watch_of(over.begin(None, 1.0, situation(), 0.0))
    over.on_level(watch, frozenset({2, 3}), acked=True)
    over.step(situation(), 0.1)
    watch = watch_of(over.step(situation(end=500), 0.2))
    over.on_level(watch, frozenset({3}), acked=True)
    over.step(situation(end=500), 0.3)
    assert over.electing == (), "2 may be preferred, and has a moment"
    over.step(situation(end=500), 0.3 + SETTLE)
    assert over.electing == (3,)
    ended = outcome_of(over.step(situation(end=500, in_sync=frozenset({1, 2})), 0.5))
    assert ended is not None
    assert ended.outcome == Outcome.FAILED
