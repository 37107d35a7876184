"""The producer: what callers get, and what it does by itself when brokers and routes change."""

import asyncio
import socket

import pytest

from rocketmq_client.errors import NameServerError, SendError, TopicNotFoundError
from rocketmq_client.producer import Producer
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.store.message import Record, read_record
from rocketmq_formats.store.message_properties import parse_properties
from tests.client.fake_cluster import FakeBroker, FakeNameServer, running


def stored(broker: FakeBroker, topic: str = "t") -> list[bytes]:
    """Bodies at `broker`, queue by queue."""
    bodies = []
    for (name, _), records in sorted(broker.records.items()):
        if name == topic:
            for data in records:
                record = read_record(data, 0, len(data), check_crc=True)
                assert isinstance(record, Record)
                bodies.append(bytes(record.body(data)))
    return bodies


def properties(broker: FakeBroker, queue_id: int = 0, at: int = 0) -> dict[str, str]:
    data = broker.records["t", queue_id][at]
    record = read_record(data, 0, len(data), check_crc=True)
    assert isinstance(record, Record)
    return parse_properties(record.properties)


async def test_messages_go_round_the_queues_with_an_id_each() -> None:
    names, broker = FakeNameServer(), FakeBroker("a")
    async with running(names, broker), Producer(names.address) as producer:
        names.put("t", broker)
        results = [await producer.send("t", b"m%d" % i, properties={"KEYS": f'k"{i}'}) for i in range(8)]
        assert sorted(result.queue_id for result in results) == [0, 0, 1, 1, 2, 2, 3, 3]
        assert sorted(stored(broker)) == [b"m%d" % i for i in range(8)]
        assert len({result.msg_id for result in results}) == 8
        assert all(result.acknowledged and result.attempts == 1 for result in results)
        first = results[0]
        assert (first.broker_name, first.broker_address, first.queue_offset) == ("a", broker.address, 0)
        assert properties(broker, first.queue_id) == {"UNIQ_KEY": first.msg_id, "WAIT": "true", "KEYS": 'k"0'}
        assert names.asked == ["t"]


async def test_a_queue_can_be_chosen() -> None:
    names, broker = FakeNameServer(), FakeBroker("a")
    async with running(names, broker), Producer(names.address) as producer:
        names.put("t", broker)
        results = [await producer.send("t", b"x", queue_id=2) for _ in range(3)]
        assert [(result.queue_id, result.queue_offset) for result in results] == [(2, 0), (2, 1), (2, 2)]


async def test_many_in_flight_share_one_connection() -> None:
    names, broker = FakeNameServer(), FakeBroker("a")
    async with running(names, broker), Producer(names.address) as producer:
        names.put("t", broker)
        results = await asyncio.gather(*(producer.send("t", b"%d" % i) for i in range(500)))
        assert len({result.msg_id for result in results}) == 500
        assert len(stored(broker)) == 500
        assert broker.server.connections <= 2  # the pipeline's and the heartbeats'


async def test_a_batch_is_one_request() -> None:
    names, broker = FakeNameServer(), FakeBroker("a")
    async with running(names, broker), Producer(names.address) as producer:
        names.put("t", broker, queues=1)
        result = await producer.send_batch("t", [b"1", b"2", b"3"], properties={"TAGS": "T"})
        assert stored(broker) == [b"1", b"2", b"3"]
        assert [properties(broker, at=i)["UNIQ_KEY"] for i in range(3)] == result.msg_id.split(",")
        assert properties(broker)["TAGS"] == "T"
        assert len(broker.sends) == 1
        with pytest.raises(ValueError, match="without messages"):
            await producer.send_batch("t", [])


@pytest.mark.parametrize("code", [17, 14, 1, 2, 16, 204, 205, 1500])
async def test_a_refusal_that_may_pass_is_tried_again_at_another_broker(code: int) -> None:
    names, brokers = FakeNameServer(), [FakeBroker("a"), FakeBroker("b")]
    async with running(names, *brokers), Producer(names.address) as producer:
        names.put("t", *brokers)
        await producer.send("t", b"first")
        brokers[0].refusals.append(code)
        brokers[1].refusals.append(code)
        results = [await producer.send("t", b"%d" % i) for i in range(9)]
        assert {result.attempts for result in results} == {1, 3}
        assert sum(len(stored(broker)) for broker in brokers) == 10


async def test_a_refusal_for_good_is_not_tried_again() -> None:
    names, broker = FakeNameServer(), FakeBroker("a")
    async with running(names, broker), Producer(names.address) as producer:
        names.put("t", broker)
        broker.refusals.append(ResponseCode.MESSAGE_ILLEGAL)
        with pytest.raises(SendError, match=r"13 MESSAGE_ILLEGAL: told to, after 1 attempts") as caught:
            await producer.send("t", b"x")
        assert (caught.value.code, caught.value.attempts, caught.value.maybe_stored) == (13, 1, False)


async def test_attempts_are_bounded() -> None:
    names, broker = FakeNameServer(), FakeBroker("a")
    async with running(names, broker), Producer(names.address, attempts=4, pause=0) as producer:
        names.put("t", broker)
        broker.refusals.extend([ResponseCode.SERVICE_NOT_AVAILABLE] * 9)
        with pytest.raises(SendError) as caught:
            await producer.send("t", b"x")
        assert (caught.value.code, caught.value.attempts, caught.value.maybe_stored) == (14, 4, True)
        assert len(broker.sends) == 4


@pytest.mark.parametrize("code", [10, 11, 12])
async def test_stored_without_its_copies_is_a_result(code: int) -> None:
    names, broker = FakeNameServer(), FakeBroker("a")
    async with running(names, broker), Producer(names.address) as producer:
        names.put("t", broker)
        await producer.send("t", b"first")
        broker.stored_with = code
        result = await producer.send("t", b"x")
        assert (result.code, result.acknowledged) == (code, False)


async def test_a_new_master_is_found_while_sends_are_in_flight() -> None:
    names, old, new = FakeNameServer(), FakeBroker("a"), FakeBroker("a")
    async with running(names, old, new), Producer(names.address, attempts=50, pause=0.001) as producer:
        names.put("t", old)
        await producer.send("t", b"first")
        old.silent = True
        sends = [asyncio.ensure_future(producer.send("t", b"%d" % i)) for i in range(64)]
        while len(old.sends) < 65:
            await asyncio.sleep(0)
        names.routes["t"] = names.routes["t"].__class__(queue_datas=names.routes["t"].queue_datas)  # no master
        await old.server.stop()
        while len(names.asked) < 4:
            await asyncio.sleep(0)
        names.put("t", new)
        results = await asyncio.gather(*sends)
        assert {result.broker_address for result in results} == {new.address}
        assert sorted(stored(new)) == sorted(b"%d" % i for i in range(64))


async def test_no_answer_in_time_may_mean_stored() -> None:
    names, broker = FakeNameServer(), FakeBroker("a")
    async with running(names, broker), Producer(names.address, attempts=1, timeout=2.0) as producer:
        names.put("t", broker)
        await producer.send("t", b"the connection is there")
        broker.silent = True
        with pytest.raises(SendError, match="no answer") as caught:
            await producer.send("t", b"x")
        assert (caught.value.code, caught.value.maybe_stored) == (None, True)


async def test_nothing_sent_is_certainly_not_stored() -> None:
    names, broker = FakeNameServer(), FakeBroker("a")
    async with running(names, broker), Producer(names.address, attempts=2, pause=0) as producer:
        names.put("t", broker)
        await broker.server.stop()
        with pytest.raises(SendError) as caught:
            await producer.send("t", b"x")
        assert (caught.value.attempts, caught.value.maybe_stored) == (2, False)


async def test_a_topic_is_created_from_the_template() -> None:
    names, broker = FakeNameServer(), FakeBroker("a")
    async with running(names, broker), Producer(names.address) as producer:
        names.put("TBW102", broker, queues=8, perm=7)
        results = [await producer.send("t", b"x") for _ in range(3)]
        assert all(result.queue_id < 4 for result in results)
        names.put("t", broker, queues=1)
        await producer.send("t", b"x")
        await producer.send("t", b"x")
        assert names.asked.count("t") == 4  # not found three times, then found


async def test_there_is_no_route() -> None:
    names = FakeNameServer()
    async with running(names), Producer(names.address) as producer:
        with pytest.raises(TopicNotFoundError):
            await producer.send("t", b"x")


async def test_another_name_server_is_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        dead = f"127.0.0.1:{unused.getsockname()[1]}"
    names, broker = FakeNameServer(), FakeBroker("a")
    async with running(names, broker), Producer(f"{dead};{names.address}") as producer:
        names.put("t", broker)
        assert (await producer.send("t", b"x")).acknowledged
        await names.server.stop()
        assert (await producer.send("t", b"y")).acknowledged
        with pytest.raises(NameServerError, match="refused"):
            await producer.send("other", b"z")


async def test_a_name_server_with_an_old_route_is_not_asked_for_ever() -> None:
    stale, fresh, broker, gone = FakeNameServer(), FakeNameServer(), FakeBroker("a"), FakeBroker("a")
    async with running(stale, fresh, broker, gone):
        stale.put("t", gone)
        fresh.put("t", broker)
        await gone.server.stop()
        async with Producer([stale.address, fresh.address], attempts=5, pause=0) as producer:
            assert (await producer.send("t", b"x")).broker_address == broker.address


async def test_brokers_get_heartbeats_of_producers() -> None:
    names, broker = FakeNameServer(), FakeBroker("a")
    async with running(names, broker):
        names.put("t", broker)
        async with Producer(names.address, group="g") as producer:
            await producer.send("t", b"x")
            while not broker.heartbeats:
                await asyncio.sleep(0)
            assert broker.heartbeats[0].client_id == producer.client_id
            assert broker.heartbeats[0].producer_data_set[0].group_name == "g"
        assert RequestCode.UNREGISTER_CLIENT in broker.codes


async def test_a_message_larger_than_a_frame() -> None:
    names, broker = FakeNameServer(), FakeBroker("a")
    async with running(names, broker), Producer(names.address) as producer:
        names.put("t", broker)
        with pytest.raises(ValueError, match="larger than peers accept"):
            await producer.send("t", bytes(17 * 1024 * 1024))
        assert (await producer.send("t", bytes(4 * 1024 * 1024))).acknowledged


async def test_closing_ends_what_is_in_flight() -> None:
    names, broker = FakeNameServer(), FakeBroker("a")
    async with running(names, broker):
        names.put("t", broker)
        producer = Producer(names.address, attempts=1)
        broker.silent = True
        send = asyncio.ensure_future(producer.send("t", b"x"))
        while not broker.sends:
            await asyncio.sleep(0)
        await producer.close()
        with pytest.raises(SendError, match="closed here"):
            await send
        with pytest.raises(SendError, match="closed"):
            await producer.send("t", b"x")
