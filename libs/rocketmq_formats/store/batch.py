"""Several messages of one producer in one request's body; also the body of an inner batch's record.

    i32 size, i32 0, i32 0, i32 flag, i32 bodyLength, body, i16 propertiesLength, properties    per message

The broker makes ordinary records of them; a batch's own properties are appended to each message's
(`message_properties.join_properties`). Java keeps the body of a BatchCQ topic in one record instead (an inner batch,
sysFlag INNER_BATCH). We create no such topics.
Source: rocketmq-all-5.3.3: MessageDecoder.java, MessageExtEncoder.java.
"""

import struct
from collections.abc import Iterable
from typing import Final

import msgspec

from rocketmq_formats.errors import FormatError
from rocketmq_formats.store.message import MAX_PROPERTIES

_HEAD: Final = struct.Struct(">iiiii")
_LENGTH: Final = struct.Struct(">h")
_SMALLEST: Final = _HEAD.size + _LENGTH.size


class BatchError(FormatError):
    """A body that is no batch; the whole request is refused."""


class BatchMessage(msgspec.Struct, frozen=True, gc=False):
    """One message of a batch; topic, queue, hosts and times are the request's."""

    flag: int
    body: bytes
    properties: bytes


def encode_batch(messages: Iterable[BatchMessage]) -> bytes:
    """The body of a request.

    Raises:
        BatchError: a flag or length does not fit its field.
    """
    parts: list[bytes] = []
    try:
        for message in messages:
            size = _SMALLEST + len(message.body) + len(message.properties)
            parts += (
                _HEAD.pack(size, 0, 0, message.flag, len(message.body)),
                message.body,
                _LENGTH.pack(len(message.properties)),
                message.properties,
            )
    except struct.error as error:
        raise BatchError(f"a message does not fit into a batch: {error}") from error
    return b"".join(parts)


def decode_batch(body: bytes) -> list[BatchMessage]:
    """The messages in `body`, at least one. As in Java the size in front of each is ignored, only the lengths count.

    Raises:
        BatchError: empty, or lengths that do not add up.
    """
    messages = []
    position, limit = 0, len(body)
    while position < limit:
        body_start = position + _HEAD.size
        if body_start > limit:
            raise _cut(position, limit)
        *_, flag, body_length = _HEAD.unpack_from(body, position)
        body_end = body_start + body_length
        if body_length < 0 or body_end + _LENGTH.size > limit:
            raise _cut(position, limit)
        (properties_length,) = _LENGTH.unpack_from(body, body_end)
        start = body_end + _LENGTH.size
        position = start + properties_length
        if not 0 <= properties_length <= MAX_PROPERTIES or position > limit:
            raise _cut(body_start, limit)
        messages.append(BatchMessage(flag, body[body_start:body_end], body[start:position]))
    if not messages:
        raise BatchError("a batch without messages")
    return messages


def _cut(position: int, limit: int) -> BatchError:
    return BatchError(f"the lengths of the message at {position} of {limit} bytes do not add up")
