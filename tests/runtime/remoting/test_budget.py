"""The sum of what connections hold, and who gives way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_runtime.remoting.budget import Budget
from rocketmq_runtime.remoting.hosts import LOOKED_AT, Hosts, host_of, ip_of


def test_who_takes_at_its_own_pace_is_young_however_large() -> None:
    budget: Budget[str] = Budget(100)
    budget.set("silent", 10, 0.0)
    budget.set("honest", 95, 60.0)
    assert budget.exceeded
    assert budget.heaviest(60.0, down_to=100) == ["silent"]
    assert budget.heaviest(60.0, down_to=50) == ["silent", "honest"]
    assert budget.heaviest(60.0, down_to=50, older_than=1.0) == ["silent"]


def test_of_one_instant_the_largest_gives_way() -> None:
    budget: Budget[str] = Budget(100)
    budget.set("small", 40, 5.0)
    budget.set("large", 70, 5.0)
    assert budget.heaviest(5.0, down_to=100) == ["large"]


def test_the_age_counts_from_the_first_byte_or_from_fresh_ones() -> None:
    budget: Budget[str] = Budget(100)
    budget.set("a", 10, 1.0)
    budget.set("a", 20, 2.0)
    assert budget.since("a") == 1.0
    budget.set("a", 5, 3.0, fresh=True)
    assert budget.since("a") == 3.0
    budget.set("a", 0, 4.0)
    assert (budget.since("a"), budget.total) == (None, 0)


def test_those_that_shrink_without_a_word_are_asked() -> None:
    budget: Budget[str] = Budget(100)
    for name in "abc":
        budget.set(name, 50, 1.0)
    budget.measure({"a": 0, "b": 20, "c": 50}.__getitem__, 2.0)
    assert (budget.total, list(budget)) == (70, ["b", "c"])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1000), st.booleans())), st.integers(0, 3000))
def test_the_total_is_the_sum_and_those_named_are_enough(changes: list[tuple[int, int, bool]], down_to: int) -> None:
    budget: Budget[int] = Budget(1000)
    sizes: dict[int, int] = {}
    for now, (holder, size, fresh) in enumerate(changes):
        budget.set(holder, size, float(now), fresh=fresh)
        sizes[holder] = size
        assert budget.total == sum(sizes.values())
    chosen = budget.heaviest(float(len(changes)), down_to=down_to)
    assert len(set(chosen)) == len(chosen)
    assert budget.total - sum(sizes[holder] for holder in chosen) <= down_to
    if chosen:
        assert budget.total - sum(sizes[holder] for holder in chosen[:-1]) > down_to


def test_the_host_with_the_most_connections_gives_way() -> None:
    active: dict[str, float] = {}
    hosts: Hosts[str] = Hosts(active.__getitem__)
    for number in range(2 * LOOKED_AT):
        name = f"a{number}"
        active[name] = float(1000 - number)
        hosts.add("a", name)
    active["b0"] = 0.0
    hosts.add("b", "b0")
    assert hosts.gives_way("a") is None
    assert hosts.gives_way("c") == f"a{LOOKED_AT - 1}", "silent for longest among the oldest"
    assert len(hosts) == 2 * LOOKED_AT + 1
    assert hosts.remove("b", "b0")
    assert not hosts.remove("b", "b0")
    assert not hosts.remove("a", "b0")
    assert len(hosts) == 2 * LOOKED_AT


def test_hosts_that_have_the_same_do_not_push_each_other_out() -> None:
    hosts: Hosts[str] = Hosts(lambda _: 0.0)
    assert hosts.gives_way("a") is None
    hosts.add("a", "a0")
    assert hosts.gives_way("b") is None
    hosts.add("a", "a1")
    assert hosts.gives_way("b") == "a0"
    hosts.add("b", "b0")
    assert hosts.gives_way("b") is None


def test_an_ipv6_host_is_its_network() -> None:
    assert host_of("10.0.0.1:80") == "10.0.0.1"
    assert host_of("[2001:db8:1:2:3::9]:80") == host_of("[2001:db8:1:2::1]:443") == "2001:db8:1:2::"
    assert host_of("[2001:db8:1:3::1]:80") != host_of("[2001:db8:1:2::1]:80")
    assert host_of("[::ffff:10.0.0.1]:80") == "10.0.0.1"
    assert host_of("[fe80::1%eth0]:80") == host_of("[fe80::2%eth0]:80")
    assert host_of("") == ""


@pytest.mark.parametrize(
    ("address", "ip"),
    [
        ("10.0.0.1:80", "10.0.0.1"),
        ("[::ffff:10.0.0.1]:80", "10.0.0.1"),
        ("[2001:DB8::0:1]:80", "2001:db8::1"),
        ("broker-0.brokers:10911", ""),
        ("nothing", ""),
        ("", ""),
        ("[::1:80", ""),
    ],
)
def test_an_ip_address_has_one_form(address: str, ip: str) -> None:
    assert ip_of(address) == ip
