"""A consumer's subscription to a topic, from its text: `*` or `TagA || TagB`.

Pulls may carry their subscription themselves. Heartbeats bring the tags' hash codes too, but some clients leave them
out, or compute others than Java.
Source: rocketmq-all-5.3.3: FilterAPI.java.
"""

from msgspec import structs

from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.client import SUBSCRIBE_ALL, SubscriptionData
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
    tags = _tags(subscription)
    if not tags or len(tags) > MAX_TAGS:
        raise RequestRefusedError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
    return frozenset(map(java_hash_code, tags))


def with_own_codes(heard: SubscriptionData) -> SubscriptionData:
    """A heartbeat's subscription with the codes of its tags, whatever codes it has; those are left only where it names
    no tags. Java's broker takes the codes as they are: a consumer without them gets nothing."""
    if heard.expression_type not in (None, "", "TAG"):
        return heard
    if heard.sub_string == SUBSCRIBE_ALL:
        codes = frozenset[int]()
    else:
        codes = frozenset(map(java_hash_code, heard.tags_set or _tags(heard.sub_string or ""))) or heard.code_set
    return heard if codes == heard.code_set else structs.replace(heard, code_set=codes)


def _tags(subscription: str) -> list[str]:
    return [tag for tag in (part.strip() for part in subscription.split("||")) if tag]
