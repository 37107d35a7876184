"""Delay levels: the text `1s 5s ... 2h` of key messageDelayLevel, and the topic where delayed messages wait.

A message of level n (property DELAY, from 1) is stored in queue n - 1 of SCHEDULE_TOPIC_XXXX; its unit there has the
time of delivery instead of a tagsCode, so that delivery finds the time without reading the message.
Source: rocketmq-all-5.3.3: ScheduleMessageService.java.
"""

import re
from collections.abc import Sequence
from typing import Final

from rocketmq_formats.errors import FormatError
from rocketmq_formats.store.message_properties import DELAY, TAGS, find_property
from rocketmq_formats.tags import tags_code
from rocketmq_formats.topics import SCHEDULE_TOPIC

DEFAULT_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
MAX_LEVELS: Final = 255
_UNITS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL: Final = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
_SCHEDULE: Final = SCHEDULE_TOPIC.encode()
_TAGS: Final = TAGS.encode()


class DelayLevelError(FormatError):
    """A text that lists no delays, or a DELAY property that is no level."""


def parse_levels(text: str) -> tuple[int, ...]:
    """Delays in milliseconds; level n is at index n - 1.

    Raises:
        DelayLevelError: none, more than MAX_LEVELS, or one that is not a number with s, m, h or d behind it.
    """
    matches = [_LEVEL.fullmatch(word) for word in text.split()]
    if not 1 <= len(matches) <= MAX_LEVELS:
        raise DelayLevelError(f"{len(matches)} delay levels: 1 to {MAX_LEVELS} are possible")
    return tuple(_delay(match, text) for match in matches)


def delay_level(properties: bytes, levels: Sequence[int]) -> int:
    """The level a message asks for, at most the highest there is; 0 for none, and for levels below.

    Raises:
        DelayLevelError: DELAY is no i32.
    """
    text = find_property(properties, DELAY)
    if text is None:
        return 0
    if not (text.isascii() and text.removeprefix("-").isdecimal() and len(text) <= 11 and abs(int(text)) < 2**31):
        raise DelayLevelError(f"DELAY is not a delay level: {text[:80]!r}")
    return max(0, min(int(text), len(levels)))


def unit_tags_code(topic: bytes, properties: bytes, store_timestamp: int, levels: Sequence[int]) -> int:
    """The third field of a record's consume queue unit: hash of its tags, or when it is to be delivered, in ms.

    Raises:
        DelayLevelError: as `delay_level`; Java takes such a record for damaged, so it must never be stored.
    """
    if topic == _SCHEDULE:
        level = delay_level(properties, levels)
        if level:
            return store_timestamp + levels[level - 1]
    return tags_code(find_property(properties, TAGS)) if _TAGS in properties else 0


def may_be_due_at(code: int, store_timestamp: int) -> bool:
    """Whether some list of levels, perhaps not the present one, gives a message of `store_timestamp` (ms) a unit with
    `code`: levels are whole seconds. A single flipped bit never leaves a whole second."""
    return code >= store_timestamp and (code - store_timestamp) % 1000 == 0


def _delay(match: re.Match[str] | None, text: str) -> int:
    if match is None:
        raise DelayLevelError(f"not a list of delays such as `1s 5m 2h`: {text[:200]!r}")
    return int(match[1]) * _UNITS[match[2]]
