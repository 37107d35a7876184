"""The main path: a broker whose sidecar acknowledges everything takes messages and gives them back."""

from pathlib import Path

import pytest

from rocketmq_broker.app import BrokerApp
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.store.message import read_records
from rocketmq_store.errors import RecoveryInterruptedError
from tests.broker.broker_kit import running, settings_for


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


async def test_a_broker_that_is_stopped_while_it_recovers_obeys(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        assert (await group.send()).code == 0
    app = BrokerApp(settings_for(tmp_path))
    app.stopping.set()
    with pytest.raises(RecoveryInterruptedError):
        await app.start()
    await app.stop()
    assert not app.store.writer.held
    async with running(tmp_path) as group:
        assert (await group.pull(0)).code == 0
