"""Members that come and go while everything else goes wrong, and the stories that are worth telling by themselves."""

from contextlib import suppress
from functools import partial

import pytest

from rocketmq_controller.raft import AddMember, RemoveMember, TransferError
from tests.sim.quorum.controllers import Controllers
from tests.sim.quorum.faults import MEMBER_FAULTS
from tests.sim.quorum.kit import down, isolate, leaders, three
from tests.sim.quorum.member import Member
from tests.sim.quorum.run import run
from tests.sim.quorum.world import World
from tests.sim.stories import run_all

CHUNKS, SEEDS = 2, 15


@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_invariants_hold_while_members_change(chunk: int) -> None:
    run_all(partial(run, only=MEMBER_FAULTS), range(chunk * SEEDS, (chunk + 1) * SEEDS))


@pytest.mark.timeout(600)
def test_the_controllers_promises_hold_while_members_change() -> None:
    run_all(partial(run, workload=Controllers, only=MEMBER_FAULTS), range(5000, 5000 + SEEDS))


def leader(world: World) -> Member:
    for _ in range(100):
        found = leaders(world)
        if found:
            return world.members[found[0]]
        world.run_for(0.1)
    raise AssertionError("nobody leads")


def change(world: World, wanted: AddMember | RemoveMember) -> None:
    """Ask until it is taken, and wait until it is committed and no learner is left."""
    for _ in range(100):
        if world.change(leader(world), wanted):
            break
        world.run_for(0.1)
    else:
        raise AssertionError(f"refused: {wanted}")
    here = isinstance(wanted, AddMember)
    for _ in range(200):
        world.run_for(0.05)
        if (wanted.id in world.checker.members.voters) is here and wanted.id not in world.checker.members.learners:
            return
    raise AssertionError(f"{wanted} did not come about: {world.checker.members}")


def replace(world: World, old: str) -> Member:
    new = world.newcomer()
    change(world, AddMember(new.name, "h", 1 + ord(new.name)))
    change(world, RemoveMember(old))
    return new


def nothing_is_lost(world: World, *names: str) -> None:
    world.run_for(4)
    world.clients_stop = True
    world.run_for(4)
    assert world.checker.members.voters == set(names)
    (name,) = leaders(world)
    assert name in names
    world.workload.finish([state.inner for one in names if (state := world.members[one].state) is not None])


@pytest.mark.parametrize("seed", range(10))
def test_a_dead_member_is_replaced_under_another_id(seed: int) -> None:
    world, (lead, dead, third) = three(seed)
    down(world, dead)
    new = replace(world, dead.name)
    down(world, third)  # the new one makes up a majority with one of the old ones
    answers = world.answers
    world.run_for(5)
    assert world.answers > answers
    world.start(third)
    nothing_is_lost(world, lead.name, third.name, new.name)


@pytest.mark.parametrize("seed", range(10))
def test_a_removed_member_that_comes_back_disturbs_no_other(seed: int) -> None:
    """It was down when it was removed, so it does not know, and has the configuration file of then."""
    world, (lead, old, third) = three(seed)
    down(world, old)
    new = replace(world, old.name)
    world.run_for(3)
    terms = max(world.checker.leaders)
    old.configured = [lead.name, third.name]
    world.start(old)
    answers = world.answers
    world.run_for(10)
    assert max(world.checker.leaders) == terms
    assert world.answers > answers + 100
    assert old.machine is not None
    assert old.machine.leader is None
    nothing_is_lost(world, lead.name, third.name, new.name)


@pytest.mark.parametrize("seed", range(10))
def test_all_members_are_replaced_one_after_the_other_and_the_leader_each_time(seed: int) -> None:
    world, _ = three(seed)
    for _ in range(3):
        old = leader(world).name
        if old in world.checker.first.ids:
            replace(world, old)
    for old in sorted(world.checker.members.ids & world.checker.first.ids):
        replace(world, old)
    assert not world.checker.members.ids & world.checker.first.ids
    nothing_is_lost(world, *world.checker.members.ids)


@pytest.mark.parametrize("seed", range(10))
def test_a_member_that_was_away_while_all_others_were_replaced_finds_the_new_ones(seed: int) -> None:
    """All members that it had were replaced; its configuration file was updated."""
    world, (one, away, other) = three(seed)
    down(world, away)
    new = [replace(world, one.name), replace(world, other.name)]
    world.calm = True
    world.start(away)
    nothing_is_lost(world, away.name, *(member.name for member in new))


@pytest.mark.parametrize("seed", range(10))
def test_a_member_that_was_away_learns_of_the_new_leader_from_known_members(seed: int) -> None:
    """Its configuration file is as old as its log; the new member leads."""
    world, (lead, away, stays) = three(seed)
    down(world, away)
    new = replace(world, lead.name)
    for _ in range(100):
        if leaders(world) == [new.name]:
            break
        if (machine := leader(world).machine) is not None and not machine.transferring:
            with suppress(TransferError):  # not caught up yet
                machine.transfer(new.name)
                world.wake(leader(world))
        world.run_for(0.5)
    world.inform = lambda member: None  # type: ignore[method-assign]
    away.configured = [lead.name, stays.name]
    world.start(away)
    nothing_is_lost(world, away.name, stays.name, new.name)


@pytest.mark.parametrize("seed", range(10))
def test_a_leader_that_is_cut_off_with_its_change_loses_it(seed: int) -> None:
    """The removal is in its log only: cut off, it affects no other member, and what it proposed is cut."""
    world, (lead, kept, other) = three(seed)
    assert lead.machine is not None
    before = lead.machine.configuration
    isolate(world, lead)
    assert world.change(lead, RemoveMember(kept.name))
    assert lead.machine.configuration.voters == {lead.name, other.name}
    world.run_for(5)
    assert leaders(world)[0] in (kept.name, other.name)
    world.network.heal()
    nothing_is_lost(world, lead.name, kept.name, other.name)
    assert lead.machine.configuration == before


@pytest.mark.parametrize("seed", range(10))
def test_a_learner_that_never_comes_up_is_no_harm_and_goes_again(seed: int) -> None:
    world, (lead, second, third) = three(seed)
    new = world.newcomer()
    down(world, new)
    assert world.change(leader(world), AddMember(new.name, "h", 9))
    world.run_for(3)
    assert world.checker.members.learners == {new.name}
    down(world, third)  # two of three voters are a majority still
    answers = world.answers
    world.run_for(3)
    assert world.answers > answers
    world.start(third)
    change(world, RemoveMember(new.name))
    nothing_is_lost(world, lead.name, second.name, third.name)
