"""The request that makes a topic, as mqadmin updateTopic sends it."""

from rocketmq_formats.codes import RequestCode
from rocketmq_formats.remoting.broker_admin import CreateTopicRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand, request


def topic_request(name: str = "T", queues: int = 4) -> RemotingCommand:
    header = CreateTopicRequestHeader(
        topic=name,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )
    return request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
