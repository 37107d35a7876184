"""What the demo's consumer and its delayed messages wait for before the first fault."""

from pathlib import Path

import pytest

from rocketmq_demo.engines import native_delayed
from rocketmq_demo.engines.engine import BROKER_GROUP
from rocketmq_demo.engines.native_delayed import OTHER_GROUP, REHEARSAL, TOPIC, NativeDelayed
from rocketmq_demo.engines.native_load import TOPIC as LEDGER
from rocketmq_demo.engines.native_reader import NativeReader
from rocketmq_demo.ports import PortPool
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.topics import AUTO_CREATE_TOPIC
from tests.client.fake_cluster import FakeBroker, FakeNameServer, running


async def start(other: FakeBroker, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start delayed messages where both groups run already."""
    monkeypatch.setattr(native_delayed, "make_group", lambda *_, **__: [])
    names, ours = FakeNameServer(), FakeBroker(BROKER_GROUP)
    async with running(names, ours, other):
        names.put(TOPIC, ours, other)
        names.put(REHEARSAL, other)
        with PortPool() as ports:
            await NativeDelayed(folder, ports=ports, controllers=[], nameservers=[names.address], config={}).start()
    assert {RequestCode.UPDATE_AND_CREATE_TOPIC} == set(ours.codes)


async def test_other_group_has_taken_a_message_before_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses them until its slave is in sync; when the controllers are gone, none gets in sync any more."""
    other = FakeBroker(OTHER_GROUP)
    other.refusals.extend([ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE])
    await start(other, tmp_path, monkeypatch)
    assert not other.refusals
    assert {topic for (topic, _), records in other.records.items() if records} == {REHEARSAL}


async def test_other_group_that_takes_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_delayed, "_START_SECONDS", 0.0)
    other = FakeBroker(OTHER_GROUP)
    other.refusals.extend([ResponseCode.SYSTEM_ERROR] * 10)
    with pytest.raises(TimeoutError, match=f"{OTHER_GROUP} takes no message .* told to"):
        await start(other, tmp_path, monkeypatch)


async def test_consumer_waits_until_name_servers_know_the_topic_that_a_send_created() -> None:
    names, broker = FakeNameServer(), FakeBroker(BROKER_GROUP)
    async with running(names, broker):
        names.put(LEDGER, broker)
        names.put(AUTO_CREATE_TOPIC, broker, queues=8)
        names.refusals.append(ResponseCode.TOPIC_NOT_EXIST)
        reader = NativeReader(nameservers=[names.address])
        await reader.start()
        assert names.asked == [LEDGER, AUTO_CREATE_TOPIC, LEDGER]
        assert (await reader.finish()).problems == ()
