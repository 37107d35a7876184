"""Reading back: all of a topic, and as a group."""

import asyncio
import zlib

import pytest

from rocketmq_client.consumer import Consumer
from rocketmq_client.errors import AnswerError, ClientError, TopicNotFoundError
from rocketmq_client.queue_reader import Message
from rocketmq_client.reading import read_all
from rocketmq_client.routes import Routes
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.store.message import SysFlag
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError
from rocketmq_runtime.remoting.server import Answer, Peer
from tests.client.fake_cluster import FakeBroker, FakeNameServer, running


async def everything(names: FakeNameServer, topic: str = "t", attempts: int = 10) -> list[Message]:
    client = RemotingClient()
    try:
        return await read_all(client, Routes(client, names.address), topic, attempts=attempts, pause=0)
    finally:
        await client.close()


async def take(consumer: Consumer, count: int) -> list[Message]:
    return [await anext(consumer) for _ in range(count)]


async def test_everything_of_every_queue_in_order() -> None:
    names, brokers = FakeNameServer(), [FakeBroker("a"), FakeBroker("b")]
    async with running(names, *brokers):
        names.put("t", *brokers, queues=2)
        for i in range(200):
            brokers[i % 2].append("t", i // 2 % 2, b"%d" % i, b"UNIQ_KEY\x01id%d\x02" % i)
        messages = await everything(names)
    assert len(messages) == 200
    assert [(m.broker_name, m.queue_id, m.queue_offset) for m in messages] == [
        (name, queue, offset) for name in "ab" for queue in range(2) for offset in range(50)
    ]
    assert sorted(int(m.body) for m in messages) == list(range(200))
    assert messages[0].msg_id == "id0"
    assert (messages[0].topic, messages[0].born_timestamp, messages[0].store_timestamp) == ("t", 1, 2)


async def test_queues_that_do_not_start_at_nothing() -> None:
    names, broker = FakeNameServer(), FakeBroker("a")
    async with running(names, broker):
        names.put("t", broker, queues=2)
        for i in range(10):
            broker.append("t", 0, b"%d" % i)
        broker.trimmed["t", 0] = 7
        assert [m.body for m in await everything(names)] == [b"7", b"8", b"9"]


async def test_compressed_bodies() -> None:
    names, broker = FakeNameServer(), FakeBroker("a")
    async with running(names, broker):
        names.put("t", broker, queues=1)
        broker.append("t", 0, zlib.compress(b"x" * 5000), sys_flag=SysFlag.COMPRESSED)
        assert [m.body for m in await everything(names)] == [b"x" * 5000]
        broker.append("t", 0, b"no zlib", sys_flag=SysFlag.COMPRESSED)
        with pytest.raises(ClientError, match="damaged"):
            await everything(names, attempts=1)


async def test_a_reader_continues_at_the_new_master() -> None:
    names, old, new = FakeNameServer(), FakeBroker("a"), FakeBroker("a")
    async with running(names, old, new):
        names.put("t", old, queues=1)
        for i in range(100):
            new.append("t", 0, b"%d" % i)
        await old.server.stop()
        client = RemotingClient()
        routes = Routes(client, names.address)
        await routes.route("t")
        reading = asyncio.ensure_future(read_all(client, routes, "t", attempts=1000, pause=0.001))
        while len(names.asked) < 4:
            await asyncio.sleep(0)
        names.put("t", new, queues=1)
        assert [int(m.body) for m in await reading] == list(range(100))
        await client.close()


async def test_a_queue_that_keeps_its_messages_back_is_an_error() -> None:
    names, broker = FakeNameServer(), FakeBroker("a")
    async with running(names, broker):
        names.put("t", broker, queues=1)
        broker.append("t", 0, b"x")
        original = broker._offset
        broker._offset = lambda request, offset: original(request, offset and 5)  # type: ignore[method-assign]
        with pytest.raises(ClientError, match="ends at 5, but nothing behind 1"):
            await everything(names, attempts=3)


async def test_nothing_to_read() -> None:
    names, broker = FakeNameServer(), FakeBroker("a")
    async with running(names, broker):
        with pytest.raises(TopicNotFoundError):
            await everything(names)
        names.put("t", broker)
        assert await everything(names) == []
        await broker.server.stop()
        with pytest.raises(RemotingError):
            await everything(names, attempts=2)


async def test_a_group_waits_commits_and_continues() -> None:
    names, broker = FakeNameServer(), FakeBroker("a")
    async with running(names, broker):
        names.put("t", broker, queues=2)
        broker.append("t", 0, b"before")
        async with Consumer(names.address, "t", group="g", tags="A || B") as consumer:
            assert (await anext(consumer)).body == b"before"
            waiting = asyncio.ensure_future(anext(consumer))
            while broker.codes.count(RequestCode.PULL_MESSAGE) < 3:
                await asyncio.sleep(0)
            broker.append("t", 1, b"while it waits")
            message = await waiting
            assert message.body == b"while it waits"
            consumer.done(message)
        assert broker.committed == {("g", "t", 1): 1}
        [data] = broker.heartbeats[0].consumer_data_set
        assert (data.group_name, data.consume_type) == ("g", "CONSUME_ACTIVELY")
        assert data.subscription_data_set[0].code_set == {65, 66}
        assert RequestCode.UNREGISTER_CLIENT in broker.codes

        broker.append("t", 1, b"later")
        async with Consumer(names.address, "t", group="g") as consumer:
            assert sorted(m.body for m in await take(consumer, 2)) == [b"before", b"later"]


async def test_a_group_can_begin_at_the_end() -> None:
    names, broker = FakeNameServer(), FakeBroker("a")
    async with running(names, broker):
        names.put("t", broker, queues=1)
        broker.append("t", 0, b"old")
        async with Consumer(names.address, "t", group="g", start="last") as consumer:
            while RequestCode.PULL_MESSAGE not in broker.codes:
                await asyncio.sleep(0)
            broker.append("t", 0, b"new")
            assert (await anext(consumer)).body == b"new"


async def test_a_group_moves_with_its_master() -> None:
    names, old, new = FakeNameServer(), FakeBroker("a"), FakeBroker("a")
    async with running(names, old, new):
        names.put("t", old, queues=1)
        for broker in (old, new):
            broker.append("t", 0, b"0")
        new.append("t", 0, b"1")
        async with Consumer(names.address, "t", group="g", pause=0.001) as consumer:
            assert (await anext(consumer)).body == b"0"
            names.put("t", new, queues=1)
            await old.server.stop()
            assert (await anext(consumer)).body == b"1"


async def test_more_than_it_reads_ahead() -> None:
    names, broker = FakeNameServer(), FakeBroker("a")
    async with running(names, broker):
        names.put("t", broker, queues=1)
        for i in range(3000):
            broker.append("t", 0, b"%d" % i)
        async with Consumer(names.address, "t", group="g") as consumer:
            assert [int(m.body) for m in await take(consumer, 3000)] == list(range(3000))


async def test_a_refusal_for_good_reaches_the_reader() -> None:
    class Refusing(FakeBroker):
        def on_request(self, request: RemotingCommand, peer: Peer) -> Answer:
            if request.code == RequestCode.PULL_MESSAGE:
                return response(request, 24, "no subscription")
            return super().on_request(request, peer)

    names, broker = FakeNameServer(), Refusing("a")
    async with running(names, broker):
        names.put("t", broker, queues=1)
        async with Consumer(names.address, "t", group="g") as consumer:
            with pytest.raises(AnswerError, match="24 SUBSCRIPTION_NOT_EXIST: no subscription"):
                await anext(consumer)
