"""The number of controllers changes one member at a time, and no step leaves a majority in doubt."""

import random

import pytest

from rocketmq_api.group_view import MemberView, QuorumView
from rocketmq_operator.domain import actions as act
from rocketmq_operator.domain.observed import Claim, ObservedCluster, Pod, StatefulSet
from rocketmq_operator.domain.plan.controller_cluster import plan_controller_cluster
from rocketmq_operator.domain.plan.step import Plan, PlanSettings
from rocketmq_resources import names
from rocketmq_resources.controller_cluster import parse_controller_cluster
from rocketmq_resources.decoding import Json

NOW = 1_700_000_000.0


class Cluster:
    """Controllers of one cluster, the StatefulSet and its pods."""

    def __init__(self, members: int, *, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.wanted = members
        self.replicas = members
        self.running = set(range(members))
        self.claims = set(range(members))
        self.voters = set(range(members))
        self.learner: int | None = None
        self.new: set[int] = set()
        """Voters that have not caught up yet."""
        self.leader: int | None = 0
        self.revision = dict.fromkeys(range(members), f"{members}")
        self.template = f"{members}"
        self.status: Json = {}
        self.actions: list[act.Action] = []

    def observe(self) -> ObservedCluster:
        metadata = {"name": "c", "namespace": "ns", "uid": "u", "generation": 1}
        cluster = parse_controller_cluster(
            {"metadata": metadata, "spec": {"members": self.wanted}, "status": self.status}
        )
        pods = tuple(
            Pod(
                name=f"c-controller-{ordinal}",
                ordinal=ordinal,
                uid=f"{ordinal}",
                ip="10.0.0.1",
                revision=self.revision[ordinal],
                ready=ordinal in self.voters,
                running=ordinal in self.running,
                deleting=False,
            )
            for ordinal in sorted(self.revision)
        )
        claims = tuple(
            Claim(name=f"data-c-controller-{one}", volume="data", ordinal=one, uid=f"p{one}", requested=2**30)
            for one in sorted(self.claims)
        )
        stateful_set = StatefulSet(
            name="c-controller", uid="s", replicas=self.replicas, update_revision=self.template, claim_sizes={}
        )
        return ObservedCluster(cluster=cluster, stateful_set=stateful_set, pods=pods, claims=claims, quorum=self.view())

    def view(self) -> QuorumView:
        there = sorted(self.voters | ({self.learner} if self.learner is not None else set()))
        answers = self.leader if self.leader is not None else there[0]
        return QuorumView(
            group="c",
            answered_by=names.member_id(answers),
            leader_id="" if self.leader is None else names.member_id(self.leader),
            members=tuple(
                MemberView(
                    id=names.member_id(ordinal),
                    address="c:9878",
                    is_leader=ordinal == self.leader,
                    connected=ordinal in self.running,
                    match_index=7,
                    voter=ordinal in self.voters,
                    counts=ordinal not in self.new,
                )
                for ordinal in there
            ),
        )

    def plan(self) -> Plan:
        plan = plan_controller_cluster(self.observe(), PlanSettings(), NOW)
        changed = self.apply(plan)
        for action in () if changed else plan.actions:
            self.perform(action)
        assert plan.status is not None
        if not changed:
            self.status = dict(plan.status)
        return plan

    def apply(self, plan: Plan) -> bool:
        made = next(one for one in plan.objects if one["kind"] == "StatefulSet")
        config = next(one for one in plan.objects if one["kind"] == "ConfigMap")
        spec, text = made["spec"], str(config["data"])
        assert isinstance(spec, dict)
        replicas = spec["replicas"]
        assert isinstance(replicas, int)
        members = self.voters | ({self.learner} if self.learner is not None else set())
        assert max(members) < replicas, "a member's pod is taken away"
        assert all(f"n{ordinal}-" in text for ordinal in range(replicas)), "a pod does not find itself among its peers"
        changed = replicas != self.replicas
        self.replicas, self.template = replicas, f"{replicas}"
        for ordinal in [one for one in self.revision if one >= replicas]:
            del self.revision[ordinal]
            self.running.discard(ordinal)
        return changed

    def perform(self, action: act.Action) -> None:
        self.actions.append(action)
        match action:
            case act.AddMember(member_id=member, address=address):
                assert self.learner is None, "two changes at a time"
                assert not self.new, "two changes at a time"
                assert self.voters <= self.running, "added while a member is away"
                self.learner = int(member.removeprefix("n"))
                assert address == f"c-controller-{self.learner}.c-controller.ns.svc:9878"
                assert self.learner in self.running
            case act.RemoveMember(member_id=member):
                ordinal = int(member.removeprefix("n"))
                assert ordinal >= self.wanted
                assert ordinal != self.leader
                staying = {one for one in self.voters if one < self.wanted}
                assert staying <= self.running, "removed while others are away"
                assert not self.new & staying, "removed while others catch up"
                self.voters.discard(ordinal)
            case act.TransferLeadership(target_id=target):
                self.leader = int(target.removeprefix("n"))
                assert self.leader in self.voters
            case act.DeleteClaim(name=name):
                ordinal = names.ordinal_of(name)
                assert ordinal not in self.voters | self.running, "the volume of a member"
                self.claims.discard(ordinal)
            case act.DeletePod(name=name):
                ordinal = names.ordinal_of(name)
                assert self.voters - {ordinal} <= self.running, "two are down"
                self.running.discard(ordinal)
                self.revision[ordinal] = self.template

    def step(self) -> None:
        """Something happens by itself."""
        starting = [one for one in range(self.replicas) if one not in self.running]
        choices = [("start", one) for one in starting]
        if self.learner is not None:
            choices.append(("promote", self.learner))
        choices += [("caught up", one) for one in self.new]
        if self.leader is None or self.leader not in self.running:
            choices += [("lead", one) for one in self.voters & self.running]
        if not choices:
            return
        what, ordinal = self.random.choice(choices)
        match what:
            case "start":
                self.running.add(ordinal)
                self.claims.add(ordinal)
                self.revision.setdefault(ordinal, self.template)
            case "promote":
                self.learner = None
                self.voters.add(ordinal)
                self.new.add(ordinal)
            case "caught up":
                self.new.discard(ordinal)
            case _:
                self.leader = ordinal

    @property
    def settled(self) -> bool:
        everyone = set(range(self.wanted))
        return (
            self.voters == self.running == self.claims == everyone
            and not self.new
            and self.learner is None
            and self.leader in self.voters
            and set(self.revision.values()) == {self.template}
            and self.status.get("phase") == "Running"
        )

    def run(self) -> None:
        for _ in range(600):
            (self.plan if self.random.random() < 0.5 else self.step)()
            if self.settled and not self.plan().actions:
                return
        raise AssertionError(f"not settled: {self.status} {self.voters} {self.running} {self.actions[-5:]}")


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("before", "after"), [(3, 5), (5, 3)])
def test_the_quorum_grows_and_shrinks(before: int, after: int, seed: int) -> None:
    cluster = Cluster(before, seed=seed)
    cluster.leader = seed % before
    cluster.wanted = after
    cluster.run()
    changes = [one for one in cluster.actions if isinstance(one, act.AddMember | act.RemoveMember)]
    expected = ["n3", "n4"] if after > before else ["n4", "n3"]
    assert [one.member_id for one in changes] == expected


@pytest.mark.parametrize("seed", range(20))
def test_a_change_of_mind_ends_where_it_should(seed: int) -> None:
    cluster = Cluster(3, seed=seed)
    cluster.wanted = 5
    for _ in range(cluster.random.randint(1, 25)):
        (cluster.plan if cluster.random.random() < 0.5 else cluster.step)()
    cluster.wanted = 3
    cluster.run()
    cluster.wanted = 5
    cluster.run()


def test_nothing_changes_while_a_member_is_away() -> None:
    cluster = Cluster(3)
    cluster.wanted = 5
    cluster.running.discard(2)
    for _ in range(5):
        plan = cluster.plan()
        assert not any(isinstance(one, act.AddMember) for one in plan.actions)
    assert cluster.status["phase"] == "Scaling"
    assert "n2 is not connected" in str(cluster.status["phaseReason"])


def test_a_member_with_an_id_of_its_own_is_left_alone() -> None:
    """An administrator replaced n1 by x7 (rocketmq-admin addControllerMember)."""
    assert [names.member_ordinal(text) for text in ("n0", "n12", "x7", "n", "n01", "n-1", "n²")] == [
        0,
        12,
        None,
        None,
        None,
        None,
        None,
    ]


def test_while_no_leader_answers_no_pod_goes() -> None:
    cluster = Cluster(5)
    cluster.wanted, cluster.leader = 3, None
    cluster.plan()
    assert cluster.replicas == 5
