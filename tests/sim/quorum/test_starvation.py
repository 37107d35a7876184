"""Elections under starvation: leaders do not flap when members are held up, and failover is quick when none is."""

import pytest

from rocketmq_controller.raft.consensus.stalls import Stalls
from tests.sim.quorum.kit import down, isolate
from tests.sim.quorum.starvation import (
    QUOTA,
    SHORT_STALLS,
    SMALL_QUOTA,
    STALLS,
    STRANGERS,
    Pattern,
    changes,
    leaders,
    quorum,
    starve,
    until_next_leader,
)

LEARN_SECONDS, STARVE_SECONDS = 15.0, 40.0
MOST_LEARNING, MOST_CHANGES = 6, 2

PATTERNS = {"stalls": STALLS, "short stalls": SHORT_STALLS, "quota": QUOTA, "small quota": SMALL_QUOTA}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("who", ["leader", "follower", "followers", "all"])
@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_leaders_do_not_flap_under_starvation(pattern: Pattern, who: str, seed: int) -> None:
    world = quorum(seed)
    (leader,) = leaders(world)
    others = [member for member in world.members.values() if member.name != leader]
    starved = {
        "leader": [world.members[leader]],
        "follower": others[:1],
        "followers": others,
        "all": list(world.members.values()),
    }[who]
    starve(world, starved, pattern)
    learning = changes(world, LEARN_SECONDS)
    answers = world.answers
    assert (learning <= MOST_LEARNING, changes(world, STARVE_SECONDS) <= MOST_CHANGES) == (True, True)
    assert world.answers > answers


@pytest.mark.parametrize("seed", range(3))
def test_five_starved_members_keep_their_leader(seed: int) -> None:
    world = quorum(seed, 5)
    starve(world, world.members.values(), STALLS)
    changes(world, 2 * LEARN_SECONDS)
    assert changes(world, STARVE_SECONDS) <= MOST_CHANGES


@pytest.mark.parametrize("hung", [False, True], ids=["killed", "hung"])
@pytest.mark.parametrize("members", [3, 5])
@pytest.mark.parametrize("seed", range(8))
def test_failover_is_quick_without_stalls(seed: int, members: int, hung: bool) -> None:
    world = quorum(seed, members)
    (leader,) = leaders(world)
    if hung:
        world.pause(world.members[leader], 60)
    else:
        down(world, world.members[leader])
    assert until_next_leader(world, leader, 5) < (0.25 if hung else 0.2)


@pytest.mark.parametrize("seed", range(5))
def test_failover_is_quick_again_a_minute_after_the_starvation(seed: int) -> None:
    world = quorum(seed)
    end = starve(world, world.members.values(), STALLS)
    world.run_for(LEARN_SECONDS)
    end()
    world.run_for(70)
    (leader,) = leaders(world)
    down(world, world.members[leader])
    assert until_next_leader(world, leader, 5) < 0.2


@pytest.mark.parametrize("seed", range(5))
def test_a_starved_leader_that_dies_is_followed_within_its_time_out(seed: int) -> None:
    world = quorum(seed)
    starve(world, world.members.values(), SHORT_STALLS)
    world.run_for(LEARN_SECONDS)
    for _ in range(1000):
        if leaders(world):
            break
        world.run_for(0.01)
    (leader,) = leaders(world)
    down(world, world.members[leader])
    assert until_next_leader(world, leader, 20) < 4


@pytest.mark.parametrize("seed", range(2))
def test_a_leader_that_dies_while_strangers_flood_all_members_is_soon_followed(seed: int) -> None:
    world = quorum(seed)
    starve(world, world.members.values(), STRANGERS)
    assert changes(world, 5) <= 1
    (leader,) = leaders(world)
    down(world, world.members[leader])
    assert until_next_leader(world, leader, 5) < 2


@pytest.mark.parametrize("seed", range(15))
def test_a_lease_rests_on_what_was_promised(seed: int) -> None:
    """The leader was held up, asks for more from now on, and is cut off before anybody has heard of that."""
    world = quorum(seed, 3 if seed % 3 else 5)
    (name,) = leaders(world)
    leader = world.members[name]
    world.run_for(world.rng.uniform(0, 0.1))
    isolate(world, leader)
    world.pause(leader, world.rng.uniform(0.05, 0.12))
    assert until_next_leader(world, name, 5) < 5
    world.run_for(3)


@pytest.mark.parametrize("restart", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("seed", range(15))
def test_a_promise_that_grew_is_kept(seed: int, restart: bool) -> None:
    """The leader counts on a long promise, asks for a shorter one, and is cut off; maybe the others restart."""
    world = quorum(seed, 3 if seed % 3 else 5)
    (name,) = leaders(world)
    leader = world.members[name]
    machine = leader.machine
    assert machine is not None
    machine.record_delay(1.0)
    world.run_for(0.2)
    machine.stalls = Stalls()
    world.run_for(world.rng.uniform(0, 0.1))
    isolate(world, leader)
    if restart:  # before it learns of that
        for member in [member for member in world.members.values() if member is not leader]:
            member.end(power=False)
            world.checker.forget(member.name)
            for other in member.others:
                world.network.disconnect_end(member.name, other)
            world.start(member)
    assert until_next_leader(world, name, 6) < 6
    world.run_for(3)
