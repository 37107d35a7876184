"""The election policy as an order: DefaultElectPolicy's rules, without its arithmetic."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from rocketmq_controller.domain import elect
from rocketmq_controller.domain.model import BrokerId, BrokerLiveInfo
from tests.controller.domain_kit import CLEAN, UNCLEAN, StaticView, make_group

infos = st.builds(
    BrokerLiveInfo,
    epoch=st.integers(-1, 3),
    max_offset=st.sampled_from([-1, 0, 1, 2**31, 2**32, 2**62, 2**63 - 1]),
    election_priority=st.sampled_from([-5, 0, 1, 2**31 - 1]),
)


def winner(infos_by_id: dict[int, BrokerLiveInfo], *, master: int | None = None) -> int | None:
    group = make_group(master=master)
    return elect.elect(group, StaticView(infos_by_id), CLEAN)


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
    assert elect.elect(group, Vanishing({2, 3}), CLEAN) == 2
    assert elect.elect(group, Vanishing({2: BrokerLiveInfo(), 3: BrokerLiveInfo(0, 0)}), CLEAN) == 3


@given(st.dictionaries(st.integers(1, 6), infos, min_size=2))
def test_rank_is_a_total_order(infos_by_id: dict[int, BrokerLiveInfo]) -> None:
    ranks = [elect.rank(BrokerId(broker_id), info) for broker_id, info in infos_by_id.items()]
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
    one = elect.elect(group, StaticView(infos_by_id), options)
    two = elect.elect(shuffled, StaticView(dict(reversed(infos_by_id.items()))), options)
    assert one == two
    in_sync = {i: info for i, info in infos_by_id.items() if i <= 3}
    allowed = in_sync or (infos_by_id if unclean else {})
    # the plain statement of the policy
    best = sorted(allowed, key=lambda i: (-allowed[i].epoch, -allowed[i].max_offset, allowed[i].election_priority, i))
    assert one == (best[0] if best else None)
