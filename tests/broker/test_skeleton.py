"""The main path: a broker whose sidecar acknowledges everything takes messages and gives them back."""

from pathlib import Path

from rocketmq_formats.remoting.codes import ResponseCode
from rocketmq_formats.store.message import read_records
from tests.broker.broker_kit import running


async def test_messages_come_back_as_they_were_sent(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as group:
        for number in range(3):
            answer = await group.send(b"message %d" % number)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            assert answer.ext_fields is not None
            assert answer.ext_fields["queueOffset"] == str(number)
        pulled = await group.pull(0)
        assert pulled.code == ResponseCode.SUCCESS
        assert pulled.remark == "FOUND"
        records = read_records(pulled.body, check_crc=True)
        assert [bytes(record.body(pulled.body)) for record in records] == [b"message 0", b"message 1", b"message 2"]
