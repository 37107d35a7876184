"""The short ways of a send's frames lead where the generic codec leads."""

import pytest

from rocketmq_formats.codes import RequestCode
from rocketmq_formats.errors import FrameError
from rocketmq_formats.remoting.command import RemotingCommand, encode_frame, response
from rocketmq_formats.remoting.connection import RemotingConnection
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.remoting.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from rocketmq_formats.remoting.send_frames import (
    SendTemplate,
    decode_send_answer,
    encode_send_answer,
    json_properties,
)

PROPERTIES = 'KEYS\x01k"1\\\x02TAGS\x01ä\x02UNIQ_KEY\x01C0\x02'.encode()


@pytest.mark.parametrize("batch", [False, True])
def test_a_request_is_read_as_its_typed_header(batch: bool) -> None:
    template = SendTemplate(producer_group='g"', topic="t", queue_id=3, broker_name="b", batch=batch)
    frame = template.frame(7, 1_700_000_000_000, json_properties(PROPERTIES), b"body")
    [command] = RemotingConnection().receive_data(frame)
    assert command.code == (RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2)
    assert (command.opaque, command.flag, command.body, command.version) == (7, 0, b"body", 479)
    assert decode_header(SendMessageRequestHeaderV2, command.ext_fields or {}) == SendMessageRequestHeaderV2(
        producer_group='g"',
        topic="t",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=3,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties=PROPERTIES.decode(),
        reconsume_times=0,
        unit_mode=False,
        batch=batch,
        broker_name="b",
    )


def test_a_request_larger_than_a_frame_is_refused() -> None:
    template = SendTemplate(producer_group="g", topic="t", queue_id=0, broker_name="b")
    with pytest.raises(ValueError, match="larger than peers accept"):
        template.frame(1, 0, b"", bytes(16 * 1024 * 1024))


@pytest.mark.parametrize("transaction_id", ["C0", 'a"\x01ü', None])
def test_an_answer_is_what_the_generic_codec_writes(transaction_id: str | None) -> None:
    header = SendMessageResponseHeader(msg_id="7F", queue_id=1, queue_offset=2**40, transaction_id=transaction_id)
    generic = encode_frame(response(RemotingCommand(310, opaque=9), 0, None, header))
    short = encode_send_answer(9, "7F", 1, 2**40, transaction_id)
    [expected], [found] = (RemotingConnection().receive_data(frame) for frame in (generic, short))
    assert found == expected
    answer = decode_send_answer(short[8:])
    assert answer.fields is not None
    assert (answer.code, answer.opaque, answer.fields.queue_id, answer.fields.queue_offset) == (0, 9, 1, 2**40)


def test_a_refusal_is_read_without_fields() -> None:
    answer = decode_send_answer(encode_frame(response(RemotingCommand(310, opaque=9), 14, "not writable"))[8:])
    assert (answer.code, answer.opaque, answer.remark, answer.fields) == (14, 9, "not writable", None)


def test_an_answer_that_is_none() -> None:
    with pytest.raises(FrameError):
        decode_send_answer(b'{"opaque":1}')
