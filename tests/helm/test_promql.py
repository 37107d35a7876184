"""The reader of expressions that the other tests here stand on."""

import pytest

from tests.helm.promql import Named, groupings, selectors


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ('max by (a, b) (up{job="x", a!="y"}) == 0', {Named("up", frozenset({"job", "a"}))}),
        ("changes(max by (a) (epoch)[1h:30s]) > 3", {Named("epoch", frozenset())}),
        (
            'rate(x_bucket{le=~".+"}[$__rate_interval]) and on (a) group_left (b) y == 1',
            {Named("x_bucket", frozenset({"le"})), Named("y", frozenset())},
        ),
        ('label_replace(z, "to", "$1", "from", "(.*)") > 64 * 1024', {Named("z", frozenset())}),
        ("floor(1 + sum(w) / 1e6) unless v offset 5m", {Named("w", frozenset()), Named("v", frozenset())}),
    ],
)
def test_metrics_and_their_matchers(expression: str, named: set[Named]) -> None:
    assert set(selectors(expression)) == named


def test_groupings() -> None:
    assert groupings('sum by (a, b) (x) / on (c) group_left (d) y{e="by (f)"}') == {"a", "b", "c", "d"}
