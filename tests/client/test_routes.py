"""Routes: what of a name server's answer is usable, and who is asked when."""

import asyncio

import pytest

from rocketmq_client.errors import NameServerError, TopicNotFoundError
from rocketmq_client.routes import PublishQueue, Routes, name_servers_of
from rocketmq_formats.remoting.nameserver import BrokerData, QueueData, TopicRouteData
from rocketmq_runtime.remoting.client import RemotingClient
from tests.client.fake_cluster import FakeNameServer, running


def queues(name: str, perm: int = 6, number: int = 2) -> QueueData:
    return QueueData(broker_name=name, read_queue_nums=number, write_queue_nums=number, perm=perm)


ROUTE = TopicRouteData(
    broker_datas=[
        BrokerData(broker_name="a", cluster="c", broker_addrs={0: "a:0", 2: "a:2"}),
        BrokerData(broker_name="orphan", cluster="c", broker_addrs={3: "o:3"}),
        BrokerData(broker_name="closed", cluster="c", broker_addrs={0: "c:0"}),
        BrokerData(broker_name="secret", cluster="c", broker_addrs={0: "s:0"}),
        BrokerData(broker_name="empty", cluster="c"),
    ],
    queue_datas=[
        queues("orphan", number=1),
        queues("a"),
        queues("closed", perm=4, number=1),
        queues("secret", perm=2, number=1),
        queues("empty"),
        queues("unknown"),
    ],
)


async def test_what_is_usable() -> None:
    names = FakeNameServer()
    async with running(names):
        names.routes["t"] = ROUTE
        client = RemotingClient()
        route = await Routes(client, names.address).route("t")
        assert route.publish == [
            PublishQueue("a", 0, "a:0"),
            PublishQueue("a", 1, "a:0"),
            PublishQueue("secret", 0, "s:0"),
        ]
        assert [(queue.broker_name, queue.queue_id, queue.address()) for queue in route.read] == [
            ("a", 0, "a:0"),
            ("a", 1, "a:0"),
            ("closed", 0, "c:0"),
            ("orphan", 0, "o:3"),
        ]
        assert route.read[0].address(2) == "a:2"
        assert route.read[0].address(9) == "a:0"
        await client.close()


async def test_those_who_ask_at_the_same_time_share_an_answer() -> None:
    names = FakeNameServer()
    async with running(names):
        names.routes["t"] = ROUTE
        client = RemotingClient()
        routes = Routes(client, names.address)
        asking = [asyncio.ensure_future(routes.refresh("t")) for _ in range(10)]
        await asyncio.sleep(0)
        asking[0].cancel()
        answers = await asyncio.gather(*asking[1:])
        assert all(answer is answers[0] for answer in answers)
        assert names.asked == ["t"]
        assert routes.known("t") is answers[0]
        await client.close()


async def test_a_topic_that_went_away_is_forgotten() -> None:
    names = FakeNameServer()
    async with running(names):
        names.routes["t"] = ROUTE
        client = RemotingClient()
        routes = Routes(client, names.address)
        await routes.route("t")
        names.routes.clear()
        assert (await routes.route("t")).topic == "t"
        with pytest.raises(TopicNotFoundError):
            await routes.refresh("t")
        assert routes.known("t") is None
        await client.close()


async def test_a_name_server_that_just_started_knows_no_topic() -> None:
    """Its no is not the last word, and not a reason to forget a route while another one is silent."""
    fresh, names = FakeNameServer(), FakeNameServer()
    async with running(fresh, names):
        names.routes["t"] = ROUTE
        client = RemotingClient()
        routes = Routes(client, [fresh.address, names.address], timeout=60.0)
        assert (await routes.route("t")).topic == "t"
        assert fresh.asked == ["t"]
        await routes.refresh("t")
        assert fresh.asked == ["t"], "the one that knows is asked first from now on"
        await names.server.stop()
        with pytest.raises(TopicNotFoundError):
            await routes.refresh("t")
        assert routes.known("t") is not None
        await client.close()


async def test_answers_that_make_no_sense() -> None:
    names = FakeNameServer()
    async with running(names):
        client = RemotingClient()
        routes = Routes(client, names.address)
        names.refusals.extend([1, 0])
        with pytest.raises(NameServerError, match="1 SYSTEM_ERROR: told to"):
            await routes.route("t")
        with pytest.raises(NameServerError, match="malformed"):
            await routes.route("t")
        await client.close()


async def test_a_name_server_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    silent, names = FakeNameServer(), FakeNameServer()
    async with running(silent, names):
        monkeypatch.setattr(silent, "on_request", lambda request, peer: None)
        names.routes["t"] = ROUTE
        client = RemotingClient()
        routes = Routes(client, [silent.address, names.address], timeout=1.0)
        await routes.route("t")
        await routes.refresh("t")
        assert names.asked == ["t", "t"]
        await client.close()


def test_lists_of_name_servers() -> None:
    assert name_servers_of(" a:1; b:2;c:3 ;") == ("a:1", "b:2", "c:3")
    assert name_servers_of(["a:1"]) == ("a:1",)
    with pytest.raises(ValueError, match="`;` stands between addresses"):
        name_servers_of("a:1,b:2")
    nothing: str | list[str]
    for nothing in ("", " ", []):
        with pytest.raises(ValueError, match="no name server given"):
            name_servers_of(nothing)
