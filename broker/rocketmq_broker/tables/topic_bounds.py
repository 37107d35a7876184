"""What is said about topics of a file or another broker that have more queues than a topic can have here, or fewer."""

from collections.abc import Mapping
from typing import Final

import structlog

from rocketmq_formats.topics import MAX_QUEUES, TopicConfig

log = structlog.get_logger(__name__)

MOST_NAMES: Final = 20


def report_bounded(topics: Mapping[str, TopicConfig]) -> None:
    """One line for all of them; `TopicTable` takes them with the nearest number."""
    names = sorted(name for name, topic in topics.items() if topic.bounded() is not topic)
    if names:
        log.warning(
            "topics get the nearest number of queues that is possible: set another one with updateTopic",
            topics=names[:MOST_NAMES],
            count=len(names),
            highest=MAX_QUEUES,
        )
