"""Groups with a learner, real sidecars under real controllers: it copies the log, and nothing makes it master."""

import msgspec
import pytest

from rocketmq_broker.domain.role import Role
from rocketmq_controller.domain.requests import policy
from rocketmq_sidecar.domain.controllers.session import ControllerSession
from tests.sim.checks import Violation
from tests.sim.groups.replica import SimReplica
from tests.sim.groups.world import GroupWorld, finish, staged

SEEDS = range(5)


def _never_master(world: GroupWorld, learner: SimReplica, seconds: float) -> None:
    """Raises Violation."""
    until = world.schedule.now + seconds
    while world.schedule.now < until:
        world.schedule.run_until(world.schedule.now + 0.1)
        group = world.checker.group
        elected = group is not None and learner.broker_id is not None and group.master_broker_id == learner.broker_id
        if elected or (learner.broker is not None and learner.broker.role.role is Role.MASTER):
            raise Violation(f"LearnersNeverLead: {group}")


def _story(seed: int, *, unclean: bool) -> None:
    """A learner comes first, then alone again when the others are gone for good."""
    with staged(seed, replicas=3, durability="strict", learners=(1,), unclean=unclean) as world:
        learner, *others = world.replicas
        world.network.dark |= {replica.name for replica in others}
        _never_master(world, learner, 5)
        assert learner.agent is not None
        assert learner.agent.machine is not None
        why = learner.agent.machine.unready(world.schedule.now)
        assert why is not None
        assert "learner" in why

        world.network.dark.clear()
        world.schedule.after(0, world.client)
        finish(world)
        copied = 0 if learner.broker is None else learner.broker.store.max_offset
        assert copied == len(world.checker.truth) > 0

        for replica in others:
            world.bury(replica)
        _never_master(world, learner, 20)


@pytest.mark.parametrize("unclean", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_learner_never_leads(seed: int, *, unclean: bool) -> None:
    _story(seed, unclean=unclean)


def test_the_story_finds_a_learner_that_asks_for_an_election(monkeypatch: pytest.MonkeyPatch) -> None:
    init = ControllerSession.__init__

    def asks(self: ControllerSession, options, **files) -> None:  # type: ignore[no-untyped-def]
        init(self, msgspec.structs.replace(options, learner=False), **files)

    monkeypatch.setattr(ControllerSession, "__init__", asks)
    monkeypatch.setattr(policy, "living_learners", lambda _group, _view: ())
    with pytest.raises(Violation, match="LearnersNeverLead"):
        _story(0, unclean=False)
