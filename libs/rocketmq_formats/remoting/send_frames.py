"""Whole frames of SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320) without the generic codec's detours.

A broker that answers, and a client that sends, tens of thousands of messages a second pay for every step of a frame;
what is built here is what `command.encode_frame` would build of the typed headers, in JSON (tests compare them).
"""

import struct
from typing import Final

import msgspec

from rocketmq_formats.codes import VERSION_5_3_3, RequestCode
from rocketmq_formats.errors import FrameError
from rocketmq_formats.remoting.command import MAX_FRAME, MAX_HEADER
from rocketmq_formats.remoting.send import DEFAULT_REGION

_pack_lengths = struct.Struct(">ii").pack
_encode = msgspec.json.Encoder().encode


class _AnswerFields(msgspec.Struct, gc=False):
    """Every value is text on the wire."""

    MSG_REGION: str
    TRACE_ON: str
    msgId: str  # noqa: N815 - the key on the wire
    queueId: str  # noqa: N815 - the key on the wire
    queueOffset: str  # noqa: N815 - the key on the wire
    transactionId: str | msgspec.UnsetType  # noqa: N815 - the key on the wire


class _Answer(msgspec.Struct, gc=False):
    code: int
    extFields: _AnswerFields  # noqa: N815 - the key on the wire
    flag: int
    language: str
    opaque: int
    remark: str | msgspec.UnsetType
    serializeTypeCurrentRPC: str  # noqa: N815 - the key on the wire
    version: int


def encode_send_answer(
    opaque: int,
    msg_id: str,
    queue_id: int,
    queue_offset: int,
    transaction_id: str | None,
    *,
    code: int = 0,
    remark: str | None = None,
    region: str = DEFAULT_REGION,
) -> bytes:
    """The frame that answers a 310 or 320 that came with a JSON header; `code` is one of 0, 10, 11, 12."""
    fields = _AnswerFields(
        region,
        "true",
        msg_id,
        str(queue_id),
        str(queue_offset),
        msgspec.UNSET if transaction_id is None else transaction_id,
    )
    text = _encode(
        _Answer(code, fields, 1, "PYTHON", opaque, msgspec.UNSET if remark is None else remark, "JSON", VERSION_5_3_3)
    )
    size = len(text)
    return _pack_lengths(size + 4, size) + text


class SendTemplate:
    """Makes the requests of one producer group for one queue; what they have in common is encoded once."""

    def __init__(
        self,
        *,
        producer_group: str,
        topic: str,
        queue_id: int,
        broker_name: str,
        batch: bool = False,
        default_topic: str = "TBW102",
        default_topic_queue_nums: int = 4,
        sys_flag: int = 0,
    ) -> None:
        fields = {
            "a": producer_group,
            "b": topic,
            "c": default_topic,
            "d": str(default_topic_queue_nums),
            "e": str(queue_id),
            "f": str(sys_flag),
            "h": "0",
            "j": "0",
            "k": "false",
            "m": "true" if batch else "false",
            "n": broker_name,
        }
        code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
        self._prefix = b'{"code":%d,"extFields":%b,"g":"' % (code, _encode(fields)[:-1])

    def frame(self, opaque: int, born_timestamp: int, properties: bytes, body: bytes) -> bytes:
        """One request; `properties` are `json_properties` of the message.

        Raises:
            ValueError: the frame would be larger than any peer accepts.
        """
        text = b'%b%d","i":"%b"},"flag":0,"language":"PYTHON","opaque":%d,"version":%d}' % (
            self._prefix,
            born_timestamp,
            properties,
            opaque,
            VERSION_5_3_3,
        )
        size = len(text)
        length = 4 + size + len(body)
        if length > MAX_FRAME or size > MAX_HEADER:
            raise ValueError(f"frame of {length} bytes with a header of {size}: larger than peers accept")
        return _pack_lengths(length, size) + text + body


def json_properties(properties: bytes) -> bytes:
    """Encoded properties (`store.message_properties`) as the inside of a JSON string."""
    return _encode(properties.decode())[1:-1]


class SendAnswerFields(msgspec.Struct, gc=False):
    """Ext fields of an answer to a send; absent where the send was refused."""

    msg_id: str = msgspec.field(default="", name="msgId")
    queue_id: int = msgspec.field(default=-1, name="queueId")
    queue_offset: int = msgspec.field(default=-1, name="queueOffset")


class SendAnswer(msgspec.Struct, gc=False):
    """What a client needs of an answer; `flag` bit 0 is not set where the broker asks something itself."""

    code: int
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    fields: SendAnswerFields | None = msgspec.field(default=None, name="extFields")


_decode_answer: Final = msgspec.json.Decoder(SendAnswer, strict=False).decode


def decode_send_answer(header: bytes | memoryview) -> SendAnswer:
    """The answer in a JSON header.

    Raises:
        FrameError: it is not a send's answer.
    """
    try:
        return _decode_answer(header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FrameError(f"header is no answer to a send: {error}") from error
