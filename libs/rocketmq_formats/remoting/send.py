"""SEND_MESSAGE (10), SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320): the headers of a broker's hottest path.

Both request headers have the same attributes, so what handles one handles the other: decode 310 and 320 as
`SendMessageRequestHeaderV2`, 10 as its base.
Source: rocketmq-all-5.3.3: SendMessageRequestHeader.java, SendMessageRequestHeaderV2.java.
"""

from typing import Final

from msgspec import field

from rocketmq_formats.json.bodies import Int32, Int64
from rocketmq_formats.remoting.headers import Header

DEFAULT_REGION: Final = "DefaultRegion"


class SendMessageRequestHeader(Header, frozen=True):
    """Header of 10. A `queue_id` below 0 leaves the choice to the broker; `born_timestamp` is milliseconds.

    `properties` are pairs `name 0x01 value 0x02`. `default_topic` is the template if the topic has to be created.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    batch: bool | None = None
    broker_name: str | None = field(default=None, name="bname")


class SendMessageRequestHeaderV2(SendMessageRequestHeader, frozen=True):
    """Header of 310 and 320: the same under one-letter keys."""

    # msgspec's `rename` does not reach inherited fields, so each is named again
    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queue_nums: Int32 = field(name="d")
    queue_id: Int32 = field(name="e")
    sys_flag: Int32 = field(name="f")
    born_timestamp: Int64 = field(name="g")
    flag: Int32 = field(name="h")
    properties: str | None = field(default=None, name="i")
    reconsume_times: Int32 | None = field(default=None, name="j")
    unit_mode: bool | None = field(default=None, name="k")
    max_reconsume_times: Int32 | None = field(default=None, name="l")
    batch: bool | None = field(default=None, name="m")
    broker_name: str | None = field(default=None, name="n")


class SendMessageResponseHeader(Header, frozen=True):
    """`transaction_id` repeats the message's UNIQ_KEY; Java's client reads MSG_REGION and TRACE_ON unasked."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    msg_region: str = field(default=DEFAULT_REGION, name="MSG_REGION")
    trace_on: bool = field(default=True, name="TRACE_ON")
