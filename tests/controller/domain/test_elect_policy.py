"""The election policy as an order: DefaultElectPolicy's rules, without its arithmetic."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_controller.domain.model import BrokerId, BrokerLiveInfo, Options
from rocketmq_controller.domain.requests import policy
from tests.controller.domain.domain_kit import CLEAN, UNCLEAN, StaticView, make_group

infos = st.builds(
    BrokerLiveInfo,
    epoch=st.integers(-1, 3),
    max_offset=st.sampled_from([-1, 0, 1, 2**31, 2**32, 2**62, 2**63 - 1]),
    election_priority=st.sampled_from([-5, 0, 1, 2**31 - 1]),
)


def winner(infos_by_id: dict[int, BrokerLiveInfo], *, master: int | None = None) -> int | None:
    group = make_group(master=master)
    return policy.elect(group, StaticView(infos_by_id), CLEAN)


def test_greatest_epoch_then_offset_then_smallest_priority_then_id() -> None:
    live = BrokerLiveInfo
    assert winner({1: live(1, 900), 2: live(2, 100)}) == 2
    assert winner({1: live(2, 100), 2: live(2, 101)}) == 2
    assert winner({1: live(2, 100, 7), 2: live(2, 100, 6)}) == 2
    assert winner({2: live(2, 100, 7), 3: live(2, 100, 7)}) == 2


def test_differs_from_5_3_3_offsets_are_compared_in_64_bits() -> None:
    """Java casts the difference to int: 2^31 bytes of lead look like a lag, and 2^32 like none."""
    assert winner({1: BrokerLiveInfo(1, 0), 2: BrokerLiveInfo(1, 2**31)}) == 2
    assert winner({1: BrokerLiveInfo(1, 0), 2: BrokerLiveInfo(1, 2**32)}) == 2
    assert winner({1: BrokerLiveInfo(1, 2**63 - 1), 2: BrokerLiveInfo(1, -1)}) == 1


def test_differs_from_5_3_3_priorities_do_not_overflow() -> None:
    """Java subtracts them, too."""
    assert winner({1: BrokerLiveInfo(1, 1, 2**31 - 1), 2: BrokerLiveInfo(1, 1, -(2**31))}) == 2


def test_differs_from_5_3_3_candidate_without_live_entry_is_no_crash() -> None:
    """Java throws when an entry goes away between two looks at the table."""

    class Vanishing(StaticView):
        def info(self, broker_name: str, broker_id: int) -> BrokerLiveInfo | None:
            return None if broker_id == 2 else super().info(broker_name, broker_id)

    group = make_group(master=None)
    assert policy.elect(group, Vanishing({2, 3}), CLEAN) == 2
    assert policy.elect(group, Vanishing({2: BrokerLiveInfo(), 3: BrokerLiveInfo(0, 0)}), CLEAN) == 3


@given(st.dictionaries(st.integers(1, 6), infos, min_size=2))
def test_rank_is_a_total_order(infos_by_id: dict[int, BrokerLiveInfo]) -> None:
    ranks = [policy.rank(BrokerId(broker_id), info) for broker_id, info in infos_by_id.items()]
    assert len(set(ranks)) == len(ranks), "no two candidates are equal"
    for a, b, c in itertools.product(ranks, repeat=3):
        assert (a < b) + (b < a) + (a == b) == 1
        assert not (a < b < c) or a < c


@given(st.dictionaries(st.integers(1, 5), infos), st.permutations(range(1, 6)), st.booleans())
def test_outcome_depends_neither_on_order_nor_on_the_dead(
    infos_by_id: dict[int, BrokerLiveInfo], order: list[int], unclean: bool
) -> None:
    group = make_group(ids=(1, 2, 3, 4, 5), master=None, in_sync=(1, 2, 3))
    shuffled = make_group(ids=tuple(order), master=None, in_sync=(3, 1, 2), next_id=6)
    options = UNCLEAN if unclean else CLEAN
    one = policy.elect(group, StaticView(infos_by_id), options)
    two = policy.elect(shuffled, StaticView(dict(reversed(infos_by_id.items()))), options)
    assert one == two
    in_sync = {i: info for i, info in infos_by_id.items() if i <= 3}
    allowed = in_sync or (infos_by_id if unclean else {})
    # the plain statement of the policy
    best = sorted(allowed, key=lambda i: (-allowed[i].epoch, -allowed[i].max_offset, allowed[i].election_priority, i))
    assert one == (best[0] if best else None)


LEARNER = BrokerLiveInfo(9, 999, 0, learner=True)


@pytest.mark.parametrize("options", [CLEAN, UNCLEAN, Options(last_resort=True)])
@pytest.mark.parametrize("in_sync", [(1, 3), (3,)])
def test_a_learner_is_never_elected(options: Options, in_sync: tuple[int, ...]) -> None:
    """However long its log is, and though it was a member before it was made one."""
    group = make_group(master=None, in_sync=in_sync)
    assert policy.elect(group, StaticView({3: LEARNER}), options) is None
    assert policy.elect(group, StaticView({3: LEARNER}), options, preferred=BrokerId(3)) is None
    assert policy.designated(group, StaticView({3: LEARNER}), "3") is None
    waiting = policy.why_waiting(group, StaticView({3: LEARNER}))
    assert waiting is not None
    assert "brokers [3] are learners (asyncLearner=true)" in waiting


def test_others_are_elected_beside_a_learner() -> None:
    view = StaticView({2: BrokerLiveInfo(1, 5), 3: LEARNER})
    assert policy.elect(make_group(master=None), view, CLEAN) == 2
    assert policy.elect(make_group(master=3), view, CLEAN) == 2, "a recorded master that is a learner now is replaced"
    assert policy.elect(make_group(master=None, in_sync=(1,)), view, UNCLEAN) == 2


def test_after_a_power_cut_what_a_learner_has_is_not_given_up() -> None:
    """A member that was made a learner has a longer log than those that may be elected."""
    group = make_group(master=None)
    assert policy.elect(group, StaticView({1: cut(9, 998), 2: cut(9, 997), 3: LEARNER}), CLEAN) is None
    assert policy.elect(group, StaticView({1: cut(9, 999), 2: cut(9, 997), 3: LEARNER}), CLEAN) == 1


CUT, LAST_RESORT = BrokerLiveInfo(unproven=True), Options(last_resort=True)


def cut(epoch: int, max_offset: int, **fields: int) -> BrokerLiveInfo:
    """Of a replica whose machine lost power."""
    return BrokerLiveInfo(epoch, max_offset, unproven=True, **fields)


@pytest.mark.parametrize(
    ("infos", "winner"),
    [
        pytest.param({1: cut(4, 900), 2: BrokerLiveInfo(4, 100)}, 2, id="who kept everything"),
        pytest.param({1: cut(4, 900), 2: cut(4, 100)}, None, id="3 has not come back"),
        pytest.param({1: cut(4, 900), 2: cut(4, 100), 3: CUT}, None, id="3 has not said where its log ends"),
        pytest.param({1: cut(4, 900), 2: cut(4, 950), 3: cut(4, 910)}, 2, id="all have: the longest log"),
        pytest.param({1: cut(4, 900), 2: cut(3, 950), 3: cut(4, 910)}, 3, id="all have: the youngest epoch first"),
        pytest.param({1: cut(4, 900), 2: cut(4, 900, election_priority=1), 3: cut(4, 0)}, 2, id="all have: priority"),
        pytest.param({1: cut(4, 900), 2: cut(4, 100), 4: BrokerLiveInfo(4, 999)}, None, id="4 is not in the set"),
    ],
)
def test_who_lost_power_is_elected_when_all_have_reported(infos: dict[int, BrokerLiveInfo], winner: int | None) -> None:
    group = make_group(ids=(1, 2, 3, 4), master=None)
    assert policy.elect(group, StaticView(infos), CLEAN) == winner


def test_a_longer_log_is_not_passed_over_by_name() -> None:
    group = make_group(master=None)
    view = StaticView({1: cut(4, 900), 2: cut(4, 950), 3: cut(4, 910)})
    assert policy.elect(group, view, CLEAN, preferred=BrokerId(1)) is None
    assert policy.elect(group, view, CLEAN, preferred=BrokerId(2)) == 2
    assert policy.designated(group, view, "1,2,3") is None


@pytest.mark.parametrize("options", [LAST_RESORT, UNCLEAN])
def test_an_operator_or_unclean_election_does_not_wait(options: Options) -> None:
    group = make_group(master=None)
    assert policy.elect(group, StaticView({1: cut(4, 900), 2: cut(4, 950)}), options) == 2


def test_a_replica_that_lost_power_is_not_forced_past_one_that_kept_everything() -> None:
    group = make_group(master=None)
    view = StaticView({1: cut(4, 900), 2: BrokerLiveInfo(4, 100)})
    assert policy.elect(group, view, LAST_RESORT, preferred=BrokerId(1)) is None


def test_the_reason_why_a_group_waits_has_the_remedy() -> None:
    group = make_group(master=None)
    why = policy.why_waiting(group, StaticView({1: cut(4, 900), 2: cut(4, 950)}))
    assert why is not None
    assert "brokers [1, 2] may lack" in why
    assert "[3] have not reported" in why
    assert "elect-master GROUP POD --force-unclean" in why
    for infos in ({}, {3: BrokerLiveInfo()}, {1: cut(4, 900), 3: BrokerLiveInfo()}):
        assert policy.why_waiting(group, StaticView(infos)) is None
