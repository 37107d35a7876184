"""A message's properties: `name 0x01 value 0x02` repeated, UTF-8; their names; changing them without a dictionary.

The broker looks up and adds a few properties of every message, so those functions work on the bytes; clients and tools
use the dictionary. As in Java, a pair without name or value does not count, the last of equal names wins,
and the last pair may lack its 0x02.
Source: rocketmq-all-5.3.3: MessageDecoder.java, MessageConst.java.
"""

import functools
from collections.abc import Mapping
from typing import Final

from rocketmq_formats.errors import FormatError
from rocketmq_formats.store.message import MAX_PROPERTIES

KEYS: Final = "KEYS"
"""Separated by spaces."""
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
"""Id of the client that waits for a reply to its message."""
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
CONSUME_START_TIMESTAMP: Final = "CONSUME_START_TIME"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
UNIQ_KEY: Final = "UNIQ_KEY"
CLUSTER: Final = "CLUSTER"
MSG_TYPE: Final = "MSG_TYPE"
SHARDING_KEY: Final = "__SHARDINGKEY"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
POP_CK: Final = "POP_CK"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
CRC32: Final = "__CRC32#"

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
_END: Final = 2


class PropertiesError(FormatError):
    """Names or values that could not be read back, or more than MAX_PROPERTIES bytes of them."""


def parse_properties(data: bytes) -> dict[str, str]:
    """All properties; bytes that are not UTF-8 become U+FFFD, as in Java. Never raises."""
    return split_properties(data.decode("utf-8", "replace"))


def split_properties(text: str) -> dict[str, str]:
    """`parse_properties` of what is text already."""
    properties = {}
    for pair in text.split(PROPERTY_SEPARATOR):
        name, _, value = pair.partition(NAME_VALUE_SEPARATOR)
        if value and name:
            properties[name] = value
    return properties


def format_properties(properties: Mapping[str, str]) -> bytes:
    """The properties in the mapping's order.

    Raises:
        PropertiesError: a separator in a name or value, an empty name, not encodable as UTF-8, or too long.
    """
    data = b"".join(_pair(name, value) for name, value in properties.items())
    return _bounded(data)


def find_property(data: bytes, name: str) -> str | None:
    """The value of one property, or None."""
    prefix = _prefix(name)
    end = len(data)
    while (at := data.rfind(prefix, 0, end)) >= 0:
        if at == 0 or data[at - 1] == _END:
            start = at + len(prefix)
            stop = data.find(b"\x02", start)
            if stop < 0:
                stop = len(data)
            if stop > start:
                return data[start:stop].decode("utf-8", "replace")
        end = at + len(prefix) - 1
    return None


def remove_property(data: bytes, name: str) -> bytes:
    """Without the pairs of this name."""
    prefix = _prefix(name)
    if prefix not in data:
        return data
    return b"\x02".join(pair for pair in data.split(b"\x02") if not pair.startswith(prefix))


def join_properties(first: bytes, second: bytes) -> bytes:
    """Both, with the separator that the first may lack: how a batch's own properties get to each of its messages.

    Raises:
        PropertiesError: more than MAX_PROPERTIES bytes.
    """
    if first and second and first[-1] != _END:
        return _bounded(b"%b\x02%b" % (first, second))
    return _bounded(first + second)


@functools.lru_cache(maxsize=256)
def _prefix(name: str) -> bytes:
    return f"{name}{NAME_VALUE_SEPARATOR}".encode("utf-8", "replace")


def _pair(name: str, value: str) -> bytes:
    text = f"{name}\x01{value}\x02"
    if not name or text.count("\x01") != 1 or text.count("\x02") != 1:
        raise PropertiesError(f"cannot be a property: {name[:80]!r}={value[:80]!r}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise PropertiesError(f"property {name[:80]!r}: {error}") from error


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_PROPERTIES:
        raise PropertiesError(f"{len(data)} bytes of properties: more than {MAX_PROPERTIES}")
    return data
