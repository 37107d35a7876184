"""The role machine: what is accepted and what may be acknowledged, state by state."""

import pytest

from rocketmq_broker.domain.role import UNACKNOWLEDGED_SECONDS, Durability, Refusal, ReplicaRole, Role
from rocketmq_formats.replica_link import Hold, HoldKind, Replication

STRICT = Durability(2, strict=True)
RELAXED = Durability(1, strict=False)


def master(
    durability: Durability = STRICT, *, epoch: int = 3, lease_until: float = 10.0, in_sync: int = 2
) -> ReplicaRole:
    role = ReplicaRole(durability)
    role.welcomed(1)
    assert role.prepare(epoch)
    assert role.grant(epoch, lease_until)
    assert role.replicated(Replication(epoch, 100, 100, in_sync))
    return role


def test_begins_without_a_role() -> None:
    role = ReplicaRole(STRICT)
    assert role.role is Role.NONE
    assert role.refusal(0.0) is Refusal.NOT_MASTER
    assert role.outward_id is None


def test_a_master_with_a_lease_and_copies_accepts() -> None:
    role = master()
    assert role.refusal(9.99) is None
    assert role.outward_id == 0


def test_nothing_is_accepted_before_the_grant() -> None:
    role = ReplicaRole(STRICT)
    role.prepare(3)
    assert role.refusal(0.0) is Refusal.NOT_MASTER
    assert role.releasable(0.0) == 0


def test_nothing_is_accepted_before_the_first_word_of_the_replicas() -> None:
    role = ReplicaRole(STRICT)
    role.prepare(3)
    role.grant(3, 10.0)
    assert role.refusal(0.0) is Refusal.TOO_FEW_IN_SYNC


def test_a_relaxed_master_refuses_when_its_lease_ends() -> None:
    role = master(RELAXED, lease_until=10.0)
    assert role.refusal(9.99) is None
    assert role.refusal(10.0) is Refusal.LEASE_ENDED
    assert role.extend_lease(3, 12.0)
    assert role.refusal(10.0) is None


def test_a_lease_of_another_epoch_is_none() -> None:
    role = master(RELAXED, lease_until=10.0)
    assert not role.extend_lease(2, 99.0)
    assert not role.extend_lease(4, 99.0)
    assert role.refusal(10.0) is Refusal.LEASE_ENDED


def test_a_strict_master_continues_without_a_lease_as_long_as_it_gets_acknowledgements() -> None:
    role = master(STRICT, lease_until=10.0)
    now = 10.0
    for end in range(200, 2000, 100):
        assert role.refusal(now) is None
        role.appended(end, now)
        now += 0.9 * UNACKNOWLEDGED_SECONDS
        assert role.replicated(Replication(3, end, end, 2))
    assert role.refusal(now + 1000) is None, "nothing waits"


def test_a_strict_master_without_a_lease_refuses_once_a_send_waits_too_long() -> None:
    role = master(STRICT, lease_until=10.0)
    role.appended(200, 20.0)
    role.appended(300, 21.0)
    assert role.refusal(20.0 + 0.99 * UNACKNOWLEDGED_SECONDS) is None
    late = 20.0 + UNACKNOWLEDGED_SECONDS
    assert role.refusal(late) is Refusal.NOT_ACKNOWLEDGED
    role.replicated(Replication(3, 199, 199, 2))
    assert role.refusal(late + 1000) is Refusal.NOT_ACKNOWLEDGED, "while it waits"
    role.replicated(Replication(3, 200, 200, 2))
    assert role.refusal(late) is None
    role.appended(400, late)
    assert role.refusal(late + 0.99 * UNACKNOWLEDGED_SECONDS) is None, "another wait begins"


def test_a_strict_master_with_a_lease_waits_for_its_set_to_shrink() -> None:
    role = master(STRICT, lease_until=100.0)
    role.appended(200, 20.0)
    assert role.refusal(99.0) is None


def test_what_waited_in_another_epoch_refuses_nothing() -> None:
    role = master(STRICT, lease_until=10.0)
    role.appended(200, 0.0)
    role.prepare(4)
    role.grant(4, 10.0)
    role.replicated(Replication(4, 0, 0, 2))
    assert role.refusal(11.0) is None


@pytest.mark.parametrize(("durability", "in_sync", "refusal"), [
    (STRICT, 1, Refusal.TOO_FEW_IN_SYNC),
    (STRICT, 2, None),
    (RELAXED, 1, None),
    (Durability(3, strict=True), 2, Refusal.TOO_FEW_IN_SYNC),
])  # fmt: skip
def test_copies_in_sync(durability: Durability, in_sync: int, refusal: Refusal | None) -> None:
    assert master(durability, in_sync=in_sync).refusal(0.0) is refusal


def test_progress_of_another_epoch_does_not_count() -> None:
    role = master()
    assert not role.replicated(Replication(2, 1000, 1000, 3))
    assert not role.replicated(Replication(4, 1000, 1000, 3))
    assert role.releasable(0.0) == 100


def test_what_was_acknowledged_stays_so() -> None:
    role = master()
    assert role.replicated(Replication(3, 50, 50, 3))
    assert role.releasable(0.0) == 100


def test_a_strict_answer_needs_no_lease_a_relaxed_one_does() -> None:
    assert master(STRICT, lease_until=10.0).releasable(11.0) == 100
    assert master(RELAXED, lease_until=10.0).releasable(11.0) == 0
    assert master(RELAXED, lease_until=10.0).releasable(9.0) == 100


def test_a_master_stays_master_in_a_later_epoch() -> None:
    role = master(epoch=3)
    assert role.grant(5, 20.0)
    assert (role.role, role.epoch) == (Role.MASTER, 5)
    assert not role.replicated(Replication(3, 200, 200, 3))
    assert role.replicated(Replication(5, 200, 200, 3))


def test_an_older_grant_is_ignored() -> None:
    role = master(epoch=3, lease_until=10.0)
    assert not role.grant(2, 99.0)
    assert role.lease_until == 10.0
    assert not ReplicaRole(STRICT).grant(3, 99.0)


def test_an_older_prepare_is_refused() -> None:
    role = master(epoch=3)
    assert not role.prepare(2)
    assert role.role is Role.MASTER


@pytest.mark.parametrize("leave", ["fence", "follow", "prepare"])
def test_a_former_master_has_no_lease_and_nothing_acknowledged(leave: str) -> None:
    role = master(epoch=3, lease_until=100.0)
    if leave == "fence":
        role.lose_role("for a test")
    elif leave == "follow":
        role.follow(4, "127.0.0.1:1")
    else:
        assert role.prepare(4)
    assert role.refusal(0.0) is not None
    assert role.releasable(0.0) == 0
    assert not role.extend_lease(role.epoch, 1000.0)


def test_a_slave_is_known_by_its_own_id() -> None:
    role = master()
    role.follow(4, "127.0.0.1:1")
    assert role.outward_id == 1
    assert role.refusal(0.0) is Refusal.SLAVE


def test_whose_tables_a_slave_copies_changes_nothing_else() -> None:
    role = master()
    assert not role.copy_from("127.0.0.1:1"), "no slave"
    role.follow(4, "")
    role.master_is_known(False)
    assert role.copy_from("127.0.0.1:1")
    assert not role.copy_from("127.0.0.1:1"), "no news"
    assert role.master_address == "127.0.0.1:1"
    assert role.copy_from("")
    assert (role.role, role.epoch, role.master_address, role.master_known) == (Role.SLAVE, 4, None, False)


def acting() -> ReplicaRole:
    role = master()
    role.follow(4, "127.0.0.1:1")
    role.least_registered = role.broker_id
    role.master_is_known(False)
    return role


def test_a_slave_acts_if_no_master_is_known_and_its_id_is_the_least() -> None:
    role = acting()
    assert role.acting
    assert role.outward_id == 1
    assert role.refusal(0.0) is Refusal.ACTING
    for least in (0, 2, None):
        role.least_registered = least
        assert not role.acting
        assert role.refusal(0.0) is Refusal.SLAVE


@pytest.mark.parametrize("end", ["known", "follow", "prepare", "lost"])
def test_acting_ends_with_a_master(end: str) -> None:
    role = acting()
    if end == "known":
        assert role.master_is_known(True)
        assert not role.master_is_known(True), "no news"
    elif end == "follow":
        role.follow(5, "127.0.0.1:2")
    elif end == "prepare":
        assert role.prepare(5)
    else:
        role.lose_role("test")
        assert not role.master_is_known(False)
    assert not role.acting


def test_after_a_lost_link_any_epoch_may_come() -> None:
    role = master(epoch=7)
    role.lose_role("link lost")
    role.forget_epoch()
    assert role.prepare(1)


def test_alone_only_while_master_and_within_the_lease() -> None:
    role = master(Durability(1, strict=False, alone=True))
    assert role.acknowledges_alone(9.99)
    assert not role.acknowledges_alone(10.0)
    role.lose_role("test")
    assert not role.acknowledges_alone(0.0)
    assert not master(RELAXED).acknowledges_alone(0.0)


FENCED = Hold(1, HoldKind.FENCED, "maintenance")


def test_a_hold_refuses_sends_and_answers_those_before_it() -> None:
    role = master()
    role.hold(FENCED)
    assert role.refusal(0.0) is Refusal.HELD
    assert role.releasable(0.0) == 100, "accepted before"
    assert role.outward_id == 0, "still master"
    role.hold(Hold(2, None, ""))
    assert role.refusal(0.0) is None


def test_a_hold_outlives_roles_and_not_the_link() -> None:
    role = ReplicaRole(STRICT)
    role.hold(FENCED)
    role.prepare(3)
    role.grant(3, 10.0)
    role.replicated(Replication(3, 100, 100, 2))
    assert role.refusal(0.0) is Refusal.HELD
    role.lose_role("link lost")
    role.forget_epoch()
    assert role.held is None
    assert role.refusal(0.0) is Refusal.NOT_MASTER, "nothing is taken before the next grant"
