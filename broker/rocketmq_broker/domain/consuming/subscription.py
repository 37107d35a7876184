"""A consumer's subscription to a topic, from its text: `*` or `TagA || TagB`.

Used for pulls that carry their subscription themselves; heartbeats bring theirs ready made.
Source: rocketmq-all-5.3.3: FilterAPI.java.
"""

from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.client import SUBSCRIBE_ALL
from rocketmq_formats.tags import java_hash_code

MAX_TAGS = 1000
"""In one subscription."""


def wanted_codes(subscription: str | None, expression_type: str | None) -> frozenset[int]:
    """Hash codes of the tags wanted; empty: everything.

    Raises:
        RequestRefusedError: no tag expression (1), or one without a tag (23).
    """
    if expression_type not in (None, "", "TAG"):
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {expression_type}",
        )
    if not subscription or subscription == SUBSCRIBE_ALL:
        return frozenset()
    tags = [tag for tag in (part.strip() for part in subscription.split("||")) if tag]
    if not tags or len(tags) > MAX_TAGS:
        raise RequestRefusedError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
    return frozenset(map(java_hash_code, tags))
