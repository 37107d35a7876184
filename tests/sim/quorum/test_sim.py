"""60 stories of a quorum in trouble, each from its seed, with every invariant checked after every step. .ci/run tells
others each day (`make sim`).

A failing seed is printed with its story; `python -m tests.sim --seed N` tells it again.
"""

from functools import partial
from pathlib import Path

import pytest

from rocketmq_controller.raft import Role
from rocketmq_controller.raft.storage.store import FORCE_NAME
from tests.sim.quorum.controllers import Controllers
from tests.sim.quorum.kit import down, isolate, leaders, left_alone_with_an_older_disk, three
from tests.sim.quorum.member import Member, timings_of
from tests.sim.quorum.network import Weather
from tests.sim.quorum.run import QUIET_SECONDS, run
from tests.sim.quorum.world import World
from tests.sim.stories import run_all

CHUNKS, SEEDS = 4, 15


@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_invariants_hold_in_every_story(chunk: int) -> None:
    run_all(run, range(chunk * SEEDS, (chunk + 1) * SEEDS))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_controllers_promises_hold_in_every_story(chunk: int) -> None:
    run_all(partial(run, workload=Controllers), range(chunk * SEEDS, (chunk + 1) * SEEDS))


def long_leader(seed: int, others: float) -> tuple[World, Member]:
    """A quorum of three or five whose leader has a time-out of 1.5 s, the others one of `others` s."""
    world = World(seed)
    leader, *rest = world.members.values()
    for member in world.members.values():
        member.end(power=False)
        member.timings = timings_of(1.5 if member is leader else others)
        world.start(member)
    for _ in range(100):
        world.run_for(0.2)
        machine = leader.machine
        if machine is not None and machine.is_leader:
            return world, leader
        for member in rest:
            if member.machine is not None and member.machine.is_leader and not member.machine.transferring:
                member.machine.transfer(leader.name)
                world.wake(member)
    raise AssertionError(f"seed {seed}: {leader.name} never led")


@pytest.mark.parametrize("seed", [seed for seed in range(30) if len(World(seed).members) > 1])
def test_a_leader_with_a_longer_time_out_than_the_others_is_waited_for(seed: int) -> None:
    """As while the operator rolls raftElectionTimeoutMs, leader last."""
    world, leader = long_leader(seed, 0.4)
    isolate(world, leader)
    world.run_for(6)
    assert [m.name for m in world.members.values() if m.machine is not None and m.machine.is_leader] != [leader.name]


@pytest.mark.parametrize("seed", [seed for seed in range(30) if len(World(seed).members) > 1])
def test_members_that_restart_with_a_shorter_time_out_keep_their_promise(seed: int) -> None:
    world, leader = long_leader(seed, 1.5)
    isolate(world, leader)  # so it does not learn that they restart
    for member in world.members.values():
        if member is not leader:
            member.end(power=False)
            world.checker.forget(member.name)
            for other in member.others:
                world.network.disconnect_end(member.name, other)
            member.timings = timings_of(0.2)
            world.start(member)
    world.run_for(6)
    assert world.checker.leaders.keys() != {1}


def all_is_well(world: World) -> None:
    """Everybody is back, and all that was answered is there."""
    world.run_for(6)
    world.clients_stop = True
    world.run_for(QUIET_SECONDS)
    assert len(leaders(world)) == 1
    states = [m.state.inner for m in world.members.values() if m.state is not None]
    assert len(states) == 3
    world.workload.finish(states)


def waits_for(world: World, truth: Member, changed: Member, old: Member) -> None:
    """The store of `changed` is another one now, and `old` was away: only with `truth` there is a leader again."""
    world.checker.forget_votes(changed.name)
    for member in (changed, old):
        world.start(member)
    world.run_for(8)
    assert leaders(world) == []
    world.start(truth)
    all_is_well(world)


@pytest.mark.parametrize("seed", range(10))
def test_a_wiped_member_does_not_bring_an_old_log_to_power(seed: int) -> None:
    """One member was down while the others acknowledged; one of these is wiped, the other one is down."""
    world, (truth, wiped, old) = three(seed)
    down(world, old)
    world.run_for(3)
    down(world, truth, wiped)
    wiped.new_disk()
    waits_for(world, truth, wiped, old)


@pytest.mark.parametrize("seed", range(10))
def test_a_member_whose_full_disk_cannot_be_overwritten_lives_and_votes_later(seed: int) -> None:
    """On a file system that copies on write. It ended at the first vote, and again after every start."""
    world, (leader, _other, full) = three(seed)
    full.disk.copies_on_write = True
    full.disk.capacity = sum(len(data) for data in full.disk.files().values())
    down(world, leader)
    world.run_for(5)
    assert leaders(world) == [], "it cannot vote"
    assert full.machine is not None
    full.disk.capacity = None
    world.run_for(8)
    assert len(leaders(world)) == 1
    world.start(leader)
    all_is_well(world)


@pytest.mark.parametrize("seed", range(10))
def test_a_wiped_voter_does_not_elect_a_second_leader_of_the_term(seed: int) -> None:
    """One member is cut off in an older term; the voters of the present one: one is wiped, the leader is down."""
    world, (leader, wiped, cut) = three(seed)
    isolate(world, cut)
    down(world, leader)
    world.start(leader)
    world.run_for(5)
    (name,) = leaders(world)
    leader, wiped = (leader, wiped) if name == leader.name else (wiped, leader)
    down(world, leader, wiped)
    wiped.new_disk()
    world.checker.forget_votes(wiped.name)
    world.network.heal()
    world.start(wiped)
    world.run_for(8)
    assert leaders(world) == []
    world.start(leader)
    all_is_well(world)


def old_vote_under_way(seed: int) -> tuple[World, Member, Member, Member] | None:
    """A leader that was cut off and does not know of the next term; the other two elect, and the voter dies and loses
    its disk before its vote arrives. None if they do not come that far before the leader steps down."""
    world, leader = long_leader(seed, 1.5)
    world.after(0.0, world.client)
    world.run_for(1)
    rest = [member for member in world.members.values() if member is not leader]
    isolate(world, leader)
    for _ in range(100_000):
        world.step()
        machines = [member.machine for member in rest]
        stands = [m for m in machines if m is not None and m.role is Role.CANDIDATE]
        if stands or leader.machine is None or leader.machine.role is not Role.LEADER:
            break
    else:
        raise AssertionError(f"seed {seed}: nobody stood")
    if len(stands) != 1:
        return None
    voter, candidate = sorted(rest, key=lambda member: member.machine is stands[0])
    world.network.holding = True
    world.network.blocked.add((voter.name, candidate.name))
    world.run_for(0.01)
    machine = voter.machine
    if machine is None or machine.voted_for != candidate.name:
        return None
    return world, leader, voter, candidate


def test_an_old_vote_that_arrives_late_and_the_voters_new_store_do_not_both_count() -> None:
    """The leader of the old term may take in the new store only when no majority can be made of its old vote."""
    stories = 0
    for seed in (seed for seed in range(60) if len(World(seed).members) == 3):
        found = old_vote_under_way(seed)
        if found is None:
            continue
        world, leader, voter, candidate = found
        voter.end(power=False)
        world.checker.forget(voter.name)
        for other in voter.others:  # the other ends live: the vote is under way on one of them
            world.network.disconnect_end(voter.name, other)
        voter.new_disk()
        world.checker.forget_votes(voter.name)
        world.network.blocked -= {(leader.name, voter.name), (voter.name, leader.name)}
        world.start(voter)
        world.run_for(0.2)
        stories += candidate.machine is not None and candidate.machine.role is Role.CANDIDATE
        world.network.heal()
        isolate(world, leader)
        world.run_for(3)
        world.network.heal()
        all_is_well(world)
    assert stories >= 5


@pytest.mark.parametrize("seed", range(10))
def test_a_member_set_back_to_an_older_copy_waits_like_a_new_one(seed: int) -> None:
    """Its leader remembers what it had acknowledged."""
    world, (_, old, other) = three(seed)
    copy = old.disk.snapshot()
    copy.on_sync = old.disk.on_sync
    down(world, other)
    world.run_for(3)
    down(world, old)
    old.disk = copy
    world.checker.forget_votes(old.name)
    world.start(old)
    world.run_for(3)
    assert old.machine is not None
    assert not old.machine.is_voter()
    assert leaders(world) == []  # two of three would be a majority if one of them had not forgotten
    world.start(other)
    all_is_well(world)
    assert old.machine.is_voter()


@pytest.mark.parametrize("seed", range(2))
def test_a_set_back_disk_waits_although_those_who_remember_have_restarted(seed: int) -> None:
    """Two of three acknowledged, all went down, and the whole disk of one of them becomes an older one. The other one
    notices it before it is away again: the one that was away and the older disk must not be a majority."""
    world, (truth, old, away) = three(seed)
    copy = old.disk.snapshot()
    down(world, away)
    world.run_for(3)
    down(world, truth, old)
    old.set_back(copy)
    world.checker.forget_votes(old.name)
    for member in (truth, old):
        world.start(member)
    world.run_for(0.2)
    assert old.waits
    down(world, truth)
    world.start(away)
    world.run_for(8)
    assert leaders(world) == []
    world.start(truth)
    all_is_well(world)


@pytest.mark.parametrize("seed", range(2))
def test_a_member_that_heard_of_a_commit_elects_no_log_that_ends_before_it(seed: int) -> None:
    world, truth = left_alone_with_an_older_disk(seed)
    assert leaders(world) == []
    world.start(truth)
    all_is_well(world)


@pytest.mark.parametrize("seed", range(10))
def test_a_copy_of_a_store_waits_like_a_new_one_whoever_remembers(seed: int) -> None:
    """Two of three acknowledged, all went down, and one of the two comes back as an older copy of its files, beside the
    one that was away: together they would be a majority that never heard of it."""
    world, (truth, restored, away) = three(seed)
    down(world, restored)
    copy = restored.disk.copy()
    world.start(restored)
    world.run_for(3)
    down(world, away)
    world.run_for(3)
    down(world, truth, restored)
    restored.new_disk(copy)
    waits_for(world, truth, restored, away)
    assert restored.machine is not None
    assert restored.machine.is_voter()


def test_the_copy_of_a_quorum_of_one_goes_on() -> None:
    """No one else can have gone on, and no one could admit it."""
    world = World(next(seed for seed in range(100) if len(World(seed).members) == 1))
    (only,) = world.members.values()
    world.after(0.0, world.client)
    world.run_for(3)
    down(world, only)
    only.new_disk(only.disk.copy())
    world.start(only)
    world.run_for(3)
    assert leaders(world) == [only.name]


def test_a_joining_store_begins_no_quorum_although_its_file_names_only_itself() -> None:
    """The quorum that it is to join exists elsewhere."""
    world = World(next(seed for seed in range(100) if len(World(seed).members) == 1))
    (only,) = world.members.values()
    down(world, only)
    only.new_disk()
    only.joins = True
    world.start(only)
    world.run_for(5)
    assert leaders(world) == []
    assert only.machine is not None
    assert not only.machine.is_voter()


def forced(seed: int) -> tuple[World, Member, list[Member]]:
    """A quorum of three that one store continues, by order, after the loss of the others; all have just started."""
    world, (left, *gone) = three(seed)
    for member in gone:
        down(world, member)
        member.new_disk()
        world.checker.forget_votes(member.name)
    for member in gone:
        world.start(member)
    world.run_for(4)
    assert leaders(world) == []  # no majority has what was acknowledged
    down(world, left, *gone)
    for member in gone:  # they may have followed the old quorum meanwhile
        member.new_disk()
    left.disk.open(Path("/store") / FORCE_NAME, create=True)
    left.disk.kill()
    for member in (left, *gone):
        world.start(member)
    return world, left, gone


def is_sole(member: Member) -> bool:
    return member.machine is not None and member.machine.log.standing.sole


@pytest.mark.parametrize("seed", range(10))
def test_the_only_store_left_continues_alone_by_order_and_admits_the_others(seed: int) -> None:
    world, _left, _gone = forced(seed)
    all_is_well(world)
    assert all(m.machine is not None and m.machine.is_voter() for m in world.members.values())
    assert not any(is_sole(m) for m in world.members.values())


@pytest.mark.parametrize("seed", range(20))
def test_what_the_only_store_left_committed_alone_outlives_it(seed: int) -> None:
    """It dies as soon as the others may be a majority without it."""
    world, left, gone = forced(seed)
    world.network.weather = Weather(slow_share=0.5, slow_delay=0.1)
    while not all(m.machine is not None and m.machine.is_voter() for m in gone):
        world.step()
        assert world.now < 60
    assert not is_sole(left)
    down(world, left)
    world.network.weather = Weather()
    world.run_for(8)
    assert len(leaders(world)) == 1


def test_a_quorum_begins_when_the_last_member_comes() -> None:
    world = World(next(seed for seed in range(100) if len(World(seed).members) == 3))
    late = world.members["b"]
    down(world, late)
    world.run_for(10)
    assert leaders(world) == []
    world.start(late)
    world.run_for(3)
    assert len(leaders(world)) == 1


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_quorum_begins_when_all_have_the_same_members_configured(name: str) -> None:
    """Else majorities of two different configurations need not share a member."""
    world = World(next(seed for seed in range(100) if len(World(seed).members) == 3))
    other = world.members[name]
    down(world, other)
    right = other.configured
    world.inform = lambda member: None  # type: ignore[method-assign]
    other.configured = right[:1]
    world.start(other)
    world.run_for(10)
    assert not any(m.machine is None or m.machine.is_sound() for m in world.members.values())
    down(world, other)
    other.configured = right
    world.start(other)
    world.run_for(3)
    assert len(leaders(world)) == 1


def test_a_seed_is_the_same_story_every_time() -> None:
    assert run(3) == run(3)
