"""How tools change the attributes of topics and groups."""

import pytest

from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.domain.tables.topic_attributes import altered_group_attributes


@pytest.mark.parametrize(
    ("current", "changes", "result"),
    [
        ({}, {}, {}),
        ({"a": "1"}, {}, {"a": "1"}),
        ({"a": "1", "b": "2"}, {"-a": ""}, {"b": "2"}),
        ({"a": "1"}, {"+a": "1"}, {"a": "1"}),
        ({"a": "1"}, {"a": "1"}, {"a": "1"}),
    ],
)
def test_a_groups_attributes_stay_until_they_are_removed(
    current: dict[str, str], changes: dict[str, str], result: dict[str, str]
) -> None:
    """mqadmin sends only the changes; a dashboard sends back what it has read."""
    assert altered_group_attributes(current, changes) == result


@pytest.mark.parametrize(
    "changes", [{"+a": "2"}, {"+x": "1"}, {"-x": ""}, {"x": "1"}, {"": ""}, {"+": ""}, {"-a": "1"}]
)
def test_attributes_that_would_have_no_effect_are_refused(changes: dict[str, str]) -> None:
    with pytest.raises(RequestRefusedError, match="unsupported attribute") as refused:
        altered_group_attributes({"a": "1"}, changes)
    assert refused.value.code == 29
