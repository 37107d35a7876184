"""The plan of a ControllerCluster: a rolling update that never leaves less than all members but the one being replaced,
in any order of events."""

import random

import msgspec
import pytest

from rocketmq_api.group_view import MemberView, QuorumView
from rocketmq_operator.domain import actions as act
from rocketmq_operator.domain.observed import Claim, ObservedCluster, Pod, StatefulSet
from rocketmq_operator.domain.plan.controller_cluster import plan_controller_cluster
from rocketmq_operator.domain.plan.step import Plan, PlanSettings
from rocketmq_resources import names
from rocketmq_resources.controller_cluster import ControllerCluster, parse_controller_cluster
from tests.operator.model.world import NOW


class Quorum:
    """Members as pods and as Raft sees them."""

    def __init__(self, seed: int = 0, **spec: object) -> None:
        self.random = random.Random(seed)
        self.spec: dict[str, object] = dict(spec)
        self.status: dict[str, object] = {}
        self.count = 5 if spec.get("members") == 5 else 3
        self.revision = "one"
        self.uids = dict.fromkeys(range(self.count), 0)
        self.revisions = dict.fromkeys(range(self.count), "one")
        self.stopping: set[int] = set()
        self.down: set[int] = set()
        self.unready: set[int] = set()
        """Running and connected, but not ready."""
        self.leader: int | None = 0
        self.term = 1
        self.actions: list[act.Action] = []
        self.settled = True
        self.left: tuple[Claim, ...] = ()
        """Volumes of former members."""

    @property
    def cluster(self) -> ControllerCluster:
        metadata = {"name": "c", "namespace": "ns", "uid": "u", "generation": 1}
        return parse_controller_cluster({"metadata": metadata, "spec": self.spec, "status": self.status})

    def observe(self) -> ObservedCluster:
        pods = tuple(
            Pod(
                name=f"c-controller-{ordinal}",
                ordinal=ordinal,
                uid=f"{ordinal}-{self.uids[ordinal]}",
                ip="10.0.0.1",
                revision=self.revisions[ordinal],
                ready=ordinal not in self.down | self.unready,
                running=ordinal not in self.down,
                deleting=ordinal in self.stopping,
            )
            for ordinal in range(self.count)
        )
        claims = tuple(
            Claim(
                name=f"data-c-controller-{ordinal}", volume="data", ordinal=ordinal, uid=f"p{ordinal}", requested=2**30
            )
            for ordinal in range(self.count)
        )
        stateful_set = StatefulSet(
            name="c-controller",
            uid="s",
            replicas=self.count,
            update_revision=self.revision,
            settled=self.settled,
            claim_sizes={"data": 2**30},
        )
        return ObservedCluster(
            cluster=self.cluster, stateful_set=stateful_set, pods=pods, claims=claims + self.left, quorum=self.view()
        )

    def view(self) -> QuorumView | None:
        living = [ordinal for ordinal in range(self.count) if ordinal not in self.down]
        if not living:
            return None
        answers = self.leader if self.leader is not None else living[0]
        return QuorumView(
            group="c",
            answered_by=names.member_id(answers),
            leader_id="" if self.leader is None else names.member_id(self.leader),
            term=self.term,
            members=tuple(
                MemberView(
                    id=names.member_id(ordinal),
                    address=f"c{ordinal}:9878",
                    is_leader=ordinal == self.leader,
                    connected=ordinal in living,
                    match_index=7,
                )
                for ordinal in range(self.count)
            ),
        )

    def reconcile(self) -> Plan:
        plan = plan_controller_cluster(self.observe(), PlanSettings(), NOW)
        for action in plan.actions:
            self.perform(action)
        assert plan.status is not None
        self.status = dict(plan.status)
        return plan

    def perform(self, action: act.Action) -> None:
        self.actions.append(action)
        match action:
            case act.DeletePod(name=name, uid=uid):
                ordinal = names.ordinal_of(name)
                if uid == f"{ordinal}-{self.uids[ordinal]}":
                    assert not self.down - {ordinal}, f"{name} is deleted while {self.down} are down"
                    assert not self.stopping, f"{name} is deleted while {self.stopping} stop"
                    assert ordinal != self.leader, "the leader is deleted before another has taken over"
                    self.stopping.add(ordinal)
            case act.TransferLeadership(target_id=target):
                self.leader, self.term = int(target.removeprefix("n")), self.term + 1
            case _:
                pass

    def step(self) -> None:
        """One thing that happens by itself."""
        choices = [("stop", ordinal) for ordinal in self.stopping] + [
            ("start", ordinal) for ordinal in self.down if ordinal not in self.stopping
        ]
        if self.leader is None and len(self.down) <= self.count // 2:
            choices += [("elect", ordinal) for ordinal in range(self.count) if ordinal not in self.down]
        if not choices:
            return
        what, ordinal = self.random.choice(choices)
        if what == "stop":
            self.stopping.discard(ordinal)
            self.crash(ordinal)
            self.uids[ordinal] += 1
            self.revisions[ordinal] = self.revision
        elif what == "start":
            self.down.discard(ordinal)
        else:
            self.leader, self.term = ordinal, self.term + 1

    def crash(self, ordinal: int) -> None:
        self.down.add(ordinal)
        if self.leader == ordinal:
            self.leader = None

    @property
    def updated(self) -> bool:
        return set(self.revisions.values()) == {self.revision} and not self.down and not self.stopping


@pytest.mark.parametrize("members", [3, 5])
@pytest.mark.parametrize("seed", range(10))
def test_a_rolling_update_replaces_one_member_at_a_time_and_the_leader_last(seed: int, members: int) -> None:
    quorum = Quorum(seed, members=members)
    quorum.revision = "two"
    for _ in range(500):
        quorum.reconcile() if quorum.random.random() < 0.5 else quorum.step()
        if quorum.updated and quorum.leader is not None:
            break
    assert quorum.updated
    deleted = [action for action in quorum.actions if isinstance(action, act.DeletePod)]
    assert len({action.name for action in deleted}) == members
    moved = [number for number, one in enumerate(quorum.actions) if isinstance(one, act.TransferLeadership)]
    assert len(moved) == 1
    assert [type(one) for one in quorum.actions[moved[0] + 1 :]] == [act.DeletePod]


@pytest.mark.parametrize("seed", range(10))
def test_crashes_in_the_middle_only_delay_it(seed: int) -> None:
    quorum = Quorum(seed)
    quorum.revision = "two"
    for number in range(800):
        if number < 200 and number % 29 == 0 and not quorum.down and not quorum.stopping:
            quorum.crash(quorum.random.randrange(3))
        quorum.reconcile() if quorum.random.random() < 0.5 else quorum.step()
        if quorum.updated and quorum.leader is not None and number > 200:
            break
    assert quorum.updated


def test_nothing_is_replaced_while_a_member_is_missing() -> None:
    quorum = Quorum()
    quorum.reconcile()
    assert quorum.status["phase"] == "Running"
    quorum.crash(1)
    quorum.revision = "two"
    quorum.revisions[1] = "two"
    plan = quorum.reconcile()
    assert plan.actions == ()
    assert plan.requeue is not None
    assert quorum.status["members"] == "2/3"


@pytest.mark.parametrize(
    ("lack", "text"),
    [
        ({"voter": False}, "is a learner"),
        ({"counts": False}, "has a new or older store"),
        ({"match_index": None}, "is 1007 entries behind"),
        ({"match_index": 900}, "is 107 entries behind"),
    ],
)
def test_nothing_is_replaced_while_a_member_is_connected_and_not_caught_up(lack: dict[str, object], text: str) -> None:
    """As after the loss of a volume: the member is there, and its vote does not count yet."""
    quorum = Quorum()
    quorum.reconcile()
    quorum.revision = "two"
    quorum.revisions[2] = "two"
    world = quorum.observe()
    assert world.quorum is not None
    members = [msgspec.structs.replace(member, match_index=1007) for member in world.quorum.members]
    for commit, refused in ((1007, True), (907, False)):
        late = msgspec.structs.replace(members[2], **lack)
        view = msgspec.structs.replace(world.quorum, commit_index=commit, members=(*members[:2], late))
        plan = plan_controller_cluster(msgspec.structs.replace(world, quorum=view), PlanSettings(), NOW)
        if refused:
            assert not any(isinstance(action, act.DeletePod) for action in plan.actions)
            assert plan.status is not None
            (degraded,) = [one for one in plan.status["conditions"] if one["type"] == "Degraded"]
            assert (degraded["status"], degraded["reason"]) == ("True", "MembersCatchingUp")
            assert degraded["message"].startswith(f"n2 {text}")
        elif lack.get("match_index") == 900:
            assert [action.name for action in plan.actions if isinstance(action, act.DeletePod)] == ["c-controller-1"]


def test_a_new_cluster_has_its_secret_made_before_its_pods() -> None:
    quorum = Quorum()
    world = ObservedCluster(cluster=quorum.cluster)
    plan = plan_controller_cluster(world, PlanSettings(), NOW)
    assert plan.first == (act.EnsureRaftSecret("c-controller-raft"),)
    assert [made["kind"] for made in plan.objects][-1] == "StatefulSet"
    assert plan.status is not None
    assert plan.status["phase"] == "Creating"


def test_a_users_own_secret_is_left_alone() -> None:
    quorum = Quorum(raftSecretName="mine")
    plan = plan_controller_cluster(ObservedCluster(cluster=quorum.cluster), PlanSettings(), NOW)
    assert plan.first == plan.actions == ()


def test_a_secret_that_is_lost_is_not_made_again_behind_running_members() -> None:
    plan = plan_controller_cluster(Quorum().observe(), PlanSettings(), NOW)
    assert plan.first == (act.EnsureRaftSecret("c-controller-raft", may_create=False),)


def test_a_paused_cluster_is_left_alone() -> None:
    quorum = Quorum(paused=True)
    quorum.revision, quorum.status = "two", {"phase": "Running"}
    plan = quorum.reconcile()
    assert plan.actions == ()
    assert plan.objects == ()
    assert quorum.status["phase"] == "Updating"


def test_members_grow_their_volumes() -> None:
    quorum = Quorum(storage={"size": "2Gi"})
    plan = quorum.reconcile()
    assert {type(action) for action in plan.actions} == {act.ResizeClaim}
    assert len(plan.actions) == 3


def test_a_cluster_is_not_running_while_outdated_pods_are_unknown() -> None:
    quorum = Quorum()
    quorum.reconcile()
    assert quorum.status["phase"] == "Running"
    quorum.settled = False
    quorum.reconcile()
    assert quorum.status["phase"] == "Updating"
    quorum.settled = True
    quorum.reconcile()
    assert quorum.status["phase"] == "Running"


def test_the_status_names_the_leader() -> None:
    quorum = Quorum()
    quorum.reconcile()
    assert quorum.status["leader"] == "c-controller-0"
    assert quorum.status["term"] == 1
    assert quorum.status["members"] == "3/3"
    quorum.crash(0)
    quorum.reconcile()
    assert "leader" not in quorum.status
    conditions = quorum.status["conditions"]
    assert isinstance(conditions, list)
    assert {one["type"]: one["status"] for one in conditions}["Available"] == "False"
