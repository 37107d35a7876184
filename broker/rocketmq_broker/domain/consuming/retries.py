"""What happens to a message that a consumer failed to consume: it goes to the group's retry topic, with growing delay,
or to its dead letters. Used by `send_back.py`.

Source: rocketmq-all-5.3.3: AbstractSendMessageProcessor.java.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from rocketmq_formats.store.message_properties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RETRY_TOPIC,
)
from rocketmq_formats.topics import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC

FIRST_LEVEL: Final = 3
"""Delay level of a first retry if the client names none; each later retry waits one level longer."""


class Retry(msgspec.Struct, frozen=True):
    """The topic and delay of the next delivery."""

    topic: str
    """`%RETRY%group` or `%DLQ%group`."""
    level: int
    """0: at once (dead letters)."""

    @property
    def dead(self) -> bool:
        return self.level == 0


def retry_of(group: str, reconsume_times: int, *, wanted_level: int, longest: int, levels: int) -> Retry:
    """`reconsume_times`: redeliveries so far, at most `longest`. `wanted_level`: the client's; below 0: dead letter, 0:
    the broker decides. `levels`: how many there are."""
    reconsume_times = max(reconsume_times, 0)  # producers may send any number
    if reconsume_times >= longest or wanted_level < 0:
        return Retry(DLQ_PREFIX + group, 0)
    return Retry(RETRY_PREFIX + group, min(wanted_level or FIRST_LEVEL + reconsume_times, levels))


def retry_properties(
    properties: Mapping[str, str], retry: Retry, *, topic: str, queue_id: int, message_id: str
) -> dict[str, str]:
    """The stored copy's properties. `topic`, `message_id`: of the message as consumed; those of the first try stay."""
    result = dict(properties)
    result.setdefault(RETRY_TOPIC, topic)
    result.setdefault(ORIGIN_MESSAGE_ID, message_id)
    result[DELAY] = str(retry.level)
    if not retry.dead:
        result[REAL_TOPIC] = retry.topic
        result[REAL_QUEUE_ID] = str(queue_id)
    return result


def place_of(retry: Retry, queue_id: int) -> tuple[str, int]:
    """Topic and queue id that the copy is stored under now."""
    return (retry.topic, queue_id) if retry.dead else (SCHEDULE_TOPIC, retry.level - 1)
