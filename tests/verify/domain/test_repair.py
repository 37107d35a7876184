"""The plans, and what none of them ever says."""

from __future__ import annotations

import itertools

import pytest

from rocketmq_formats.soundness.places import Extent, RecordName
from rocketmq_verify.domain.findings import Copy, Finding, Kind
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.domain.repair import Repair, repairs

A, B, C = (ReplicaName(f"broker-a-{index}") for index in range(3))
ALL = (A, B, C)


def corrupt(wrong: tuple[ReplicaName, ...], right: tuple[ReplicaName, ...] = ()) -> Finding:
    copies = [Copy(replica=one, right=False, reason="body CRC wrong") for one in wrong]
    copies += [Copy(replica=one, right=True, reason="body CRC right") for one in right]
    return Finding(
        kind=Kind.CORRUPT_RECORD, replicas=wrong, extent=Extent(5, 9), first_difference=7, copies=tuple(copies),
        segment=0, record=RecordName(physical_offset=5, size=4), detail="message 7 is damaged",
    )  # fmt: skip


def commands(plans: tuple[Repair, ...]) -> list[str]:
    return [command for one in plans for step in one.steps for command in step.commands]


def test_a_slave_is_rebuilt_and_verified() -> None:
    plans = repairs([corrupt((B,), (A, C))], replicas=ALL, masters=[A], group="broker-a", on_kubernetes=True)
    assert commands(plans) == [
        "kubectl rocketmq rebuild broker-a broker-a-1",
        "kubectl rocketmq verify broker-a --now",
    ]


def test_a_damaged_master_hands_over_before_anybody_copies_from_it() -> None:
    found = [corrupt((A,), (B, C)), corrupt((C,), (A, B))]
    plans = repairs(found, replicas=ALL, masters=[A], group="broker-a", on_kubernetes=True)
    assert [one.replica for one in plans] == [A, A, C]
    assert commands(plans) == [
        "kubectl rocketmq switchover broker-a broker-a-1",
        "kubectl rocketmq rebuild broker-a broker-a-0",
        "kubectl rocketmq verify broker-a --now",
        "kubectl rocketmq rebuild broker-a broker-a-2",
        "kubectl rocketmq verify broker-a --now",
    ]


def test_without_a_known_master_the_plan_names_the_ones_that_may_lead() -> None:
    plans = repairs([corrupt((A,), (B, C))], replicas=ALL)
    assert [one.replica for one in plans] == [None, A]
    assert "Make broker-a-1 or broker-a-2 the master" in plans[0].steps[0].text


@pytest.mark.parametrize("masters", [[A], [B], []])
@pytest.mark.parametrize("on_kubernetes", [True, False])
def test_two_replicas_bad_in_different_places_are_not_copied_from_each_other(
    masters: list[ReplicaName], on_kubernetes: bool
) -> None:
    found = [corrupt((A,), (B,)), corrupt((B,), (A,))]
    for replicas in ((A, B), ALL):  # the third has neither: it began later
        plans = repairs(found, replicas=replicas, masters=masters, group="broker-a", on_kubernetes=on_kubernetes)
        assert [one.replica for one in plans] == [None]
        assert not any("rebuild" in command or command.startswith("mv ") for command in commands(plans))
    copies = [command for command in commands(plans) if command.startswith("dd ")]
    assert len(copies) == 2
    assert copies[0].startswith(f"dd if=<store of {B}>/commitlog/00000000000000000000 of=<store of {A}>/commitlog/")


def test_commands_name_the_stores_where_they_are_known() -> None:
    stores = {A: "/data/a/store", B: "/data/my b/store"}
    moved = commands(repairs([corrupt((B,), (A, C))], replicas=ALL, masters=[A], stores=stores))
    assert "mv '/data/my b/store' '/data/my b/store.bad'" in moved
    found = [corrupt((A,), (B,)), corrupt((B,), (A,))]
    mended = commands(repairs(found, replicas=ALL, masters=[A], stores=stores))
    assert "cp -a --sparse=always /data/a/store <a safe place>/broker-a-0" in mended
    assert any(
        command.startswith("dd if='/data/my b/store/commitlog/00000000000000000000' of=/data/a/") for command in mended
    )
    assert not any("<store of" in command for command in (*moved, *mended))


def test_equally_wrong_bytes_have_no_right_copy_though_a_replica_lacks_them() -> None:
    alike = Finding(kind=Kind.BAD_STRUCTURE, replicas=(A, B), extent=Extent(5, 9), detail="no sound record")
    plans = repairs([alike], replicas=ALL, masters=[C])
    assert [one.replica for one in plans] == [None]
    assert "Rebuild nothing" in plans[0].steps[0].text


def test_nothing_is_rebuilt_where_no_copy_is_right() -> None:
    found = [corrupt(ALL), corrupt((B,), (A, C))]
    for on_kubernetes in (True, False):
        plans = repairs(found, replicas=ALL, group="broker-a", on_kubernetes=on_kubernetes)
        assert [one.replica for one in plans] == [None]
        assert not any("rebuild broker-a" in command or command.startswith("mv ") for command in commands(plans))
        assert "Rebuild nothing" in plans[0].steps[0].text
    everyone = Finding(kind=Kind.MISSING_SEGMENT, replicas=ALL, extent=Extent(0, 9), detail="gone")
    assert repairs([everyone], replicas=ALL)[0].replica is None
    unsure = Finding(
        kind=Kind.CORRUPT_RECORD, replicas=(A, B), extent=Extent(0, 9), detail="differs",
        copies=tuple(Copy(replica=one, right=None, reason="nobody can tell") for one in (A, B)),
    )  # fmt: skip
    assert repairs([unsure], replicas=(A, B))[0].replica is None


def test_by_hand_the_store_is_moved_away_and_not_deleted() -> None:
    said = commands(repairs([corrupt((B,), (A, C))], replicas=ALL))
    assert any(command.startswith("mv ") for command in said)
    assert not any("rm " in command for command in said)
    assert next(i for i, one in enumerate(said) if "mqshutdown" in one) < next(
        i for i, one in enumerate(said) if one.startswith("mv ")
    )


def test_every_kind_has_a_plan_and_information_needs_no_command() -> None:
    for kind, on_kubernetes in itertools.product(Kind, (True, False)):
        found = Finding(kind=kind, replicas=(B,), extent=Extent(0, 9), detail="why")
        plans = repairs([found], replicas=ALL, group="g", on_kubernetes=on_kubernetes)
        assert len(plans) in {1, 2}
        assert plans[0].steps
        if kind in {Kind.LAGGING, Kind.STALE_TAIL, Kind.UNUSED_BYTES}:
            assert commands(plans) == []
    assert repairs([], replicas=ALL) == ()
