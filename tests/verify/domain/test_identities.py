"""The same replica twice, and replicas of two groups, are refused; who is not known passes."""

from __future__ import annotations

import msgspec
import pytest

from rocketmq_verify.domain.model import ReplicaLog
from rocketmq_verify.domain.planning.identities import StrangersError, check_identities
from tests.verify.logs_kit import log


def replica(name: str, broker_id: int | None, group: str = "C/broker-a") -> ReplicaLog:
    return msgspec.structs.replace(log(name), broker_id=broker_id, group=group)


def test_replicas_of_one_group_pass() -> None:
    check_identities([replica("a", 1), replica("b", 2), replica("c", 3)])
    check_identities([replica("a", None, ""), replica("b", None, ""), replica("c", 3)])


def test_one_identity_twice_is_refused_with_both_names() -> None:
    with pytest.raises(StrangersError, match="a and c have the same brokerId, 1: the same store, or a copy"):
        check_identities([replica("a", 1), replica("b", 2), replica("c", 1)])


@pytest.mark.parametrize("other", ["C/broker-b", "D/broker-a"])
def test_another_group_is_refused_with_both_names(other: str) -> None:
    with pytest.raises(StrangersError, match=f"a is of the group C/broker-a, c of {other}"):
        check_identities([replica("a", 1), replica("b", 2), replica("c", 3, other)])
