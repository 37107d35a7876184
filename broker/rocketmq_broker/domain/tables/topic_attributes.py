"""Attributes of topics and groups, and how a tool changes them: `+name=value,-name`.

Source: rocketmq-all-5.3.3: AttributeUtil.java, TopicAttributes.java, SubscriptionGroupManager.java.
"""

from collections.abc import Mapping
from typing import Final

from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_formats.codes import ResponseCode

_ALLOWED: Final[Mapping[str, frozenset[str]]] = {
    "message.type": frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "MIXED"}),
    "queue.type": frozenset({"SimpleCQ"}),
    "cleanup.policy": frozenset({"DELETE"}),
}
"""Values that this broker can keep to; Java also knows topics for transactions, BatchCQ queues and COMPACTION."""
MAX_CHANGES: Final = 32


def altered_attributes(current: Mapping[str, str], changes: str | None) -> dict[str, str]:
    """`current` with `changes`.

    Raises:
        RequestRefusedError: an unknown name, a value this broker cannot serve, or a change that does not parse (29).
    """
    result = dict(current)
    parts = [part.strip() for part in (changes or "").split(",") if part.strip()]
    if len(parts) > MAX_CHANGES:
        raise _refused(f"more than {MAX_CHANGES} attributes")
    for part in parts:
        name, separator, value = part[1:].partition("=")
        if name not in _ALLOWED:
            raise _refused(f"unsupported attribute: {part[:80]}")
        if part[0] == "-" and not separator:
            result.pop(name, None)
        elif part[0] == "+" and value in _ALLOWED[name]:
            result[name] = value
        else:
            raise _refused(f"attribute {part[:80]!r}: +{name}= takes one of {', '.join(sorted(_ALLOWED[name]))}")
    return result


def altered_group_attributes(current: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """A group's attributes: `current` with `changes`, which tools send as `+name` or `-name` to value. This broker
    knows none, so none can be added. Others come with an official broker's table: they stay, and can be removed.

    Raises:
        RequestRefusedError: another change (29).
    """
    result = dict(current)
    for change, value in changes.items():
        if change.startswith("-") and not value and change[1:] in current:
            result.pop(change[1:], None)
        elif current.get(change.removeprefix("+")) != value:
            raise _refused(f"unsupported attribute: {change[:80]}")
    return result


def _refused(text: str) -> RequestRefusedError:
    return RequestRefusedError(ResponseCode.INVALID_PARAMETER, text)
