"""Headers and bodies of requests that a broker makes to the clients connected to it: 326.

Source: rocketmq-all-5.3.3: Broker2Client.java, ReplyMessageProcessor.java, ClientRemotingProcessor.java.
"""

from rocketmq_formats.json.bodies import Int32, Int64
from rocketmq_formats.remoting.headers import Header

# 326 PUSH_REPLY_MESSAGE_TO_CLIENT; the body is the message's


class ReplyMessageRequestHeader(Header, frozen=True):
    """The reply as its sender sent it. Hosts are `ip:port`, times are milliseconds."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    born_host: str
    store_host: str
    store_timestamp: Int64
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
