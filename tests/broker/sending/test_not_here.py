"""Transactions and delays of any length, which are not here: no send takes such a message for an ordinary one."""

from pathlib import Path

import pytest

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.store.batch import BatchMessage, encode_batch
from tests.broker.broker_kit import running

LONGER = "UNIQ_KEY\x010123456789ABCDEF0123456789ABCDEF\x02TAGS\x01A\x02"
PROPERTIES = {
    "TRAN_MSG\x01true\x02": "transaction",
    "TRAN_MSG\x01TRUE\x02PGROUP\x01P\x02": "transaction",
    "TIMER_DELAY_SEC\x015\x02": "delay",
    "TIMER_DELAY_MS\x015000\x02": "delay",
    "TIMER_DELAY_MS\x01never\x02": "delay",
    "TIMER_DELIVER_MS\x014102444800000\x02": "delay",
    "DELAY\x010\x02TIMER_DELIVER_MS\x014102444800000\x02": "delay",
}
SYS_FLAGS = {0x4: "transaction", 0xC: "transaction", 0x5: "transaction"}


def refused(answer: RemotingCommand, says: str) -> bool:
    """With a code of which Java's clients make an exception, and a sentence."""
    known = (ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR, ResponseCode.MESSAGE_ILLEGAL)
    return answer.code in known and says in (answer.remark or "") and len((answer.remark or "").split()) >= 5


@pytest.mark.parametrize("properties", PROPERTIES)
async def test_a_property_is_refused_on_every_way(tmp_path: Path, properties: str) -> None:
    says = PROPERTIES[properties]
    batch = encode_batch([BatchMessage(0, b"a", b""), BatchMessage(0, b"b", properties.encode())])
    async with running(tmp_path) as group:
        for text in (properties, properties.rstrip("\x02"), LONGER + properties, properties + LONGER):
            assert refused(await group.send(properties=text), says)
            body = encode_batch([BatchMessage(0, b"a", b""), BatchMessage(0, b"b", b"")])
            assert refused(await group.send(body, batch=True, properties=text), says)
        for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            assert refused(await group.send(batch, code=code, batch=True, properties=LONGER), says)
        assert group.app.store.max_offset == 0


@pytest.mark.parametrize("flags", SYS_FLAGS)
async def test_a_half_message_is_known_by_its_flag_alone(tmp_path: Path, flags: int) -> None:
    """It reached consumers before anybody committed it."""
    batch = encode_batch([BatchMessage(0, b"a", b"")])
    async with running(tmp_path) as group:
        assert refused(await group.send(sys_flag=flags), SYS_FLAGS[flags])
        assert refused(await group.send(batch, batch=True, sys_flag=flags), SYS_FLAGS[flags])
        assert group.app.store.max_offset == 0
        assert (await group.send(sys_flag=0x8)).code == 0, "a committed one is an ordinary message"


async def test_the_end_of_a_transaction_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        for commit in ("8", "12", "0"):
            answer = await group.call(
                RemotingCommand(37, ext_fields={"commitOrRollback": commit, "tranStateTableOffset": "0"})
            )
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert answer.remark == " request type 37 not supported: there are no transactions here"
