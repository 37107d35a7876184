"""Push consumers that are not Java's at a group of ours: with tags, of a whole group, in order, and to all members.

Their heartbeats are not JSON as Java writes it (`tests/golden/foreign`). The messages are sent by our client, so no
Java is needed here.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from rocketmq_client.producer import Producer
from rocketmq_demo.calls import call
from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.ports import PortPool
from rocketmq_demo.replica import NameServer, Replica
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.broker_admin import CreateTopicRequestHeader
from rocketmq_formats.remoting.command import request
from tests.gate.patience import patient
from tests.interop.foreign import Client, ClientUnavailableError, Consumer, cpp_client, go_client
from tests.interop.native import registered
from tests.needed import unavailable

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900, func_only=True)]

CLUSTER, NAME = "DefaultCluster", "broker-f"
COUNT = 12
QUEUES = 3
TAGS = ("A", "BB", "CCC")
ALL = [f"message {number}" for number in range(COUNT)]
RED = [f"message {number}" for number in range(COUNT) if number % 3 != 1]
"""Tags that match `A || CCC`."""


class SmallGroup:
    """One replica: the consumers are tested here, not the copies."""

    def __init__(self, folder: Path, ports: PortPool) -> None:
        self.folder = folder
        self.controllers = ControllerCluster(folder / "controllers", ports=ports, members=1)
        self.nameserver = NameServer(folder / "namesrv", port=ports.single())
        self.namesrv = self.nameserver.address
        self.replica = Replica(
            NAME,
            folder=folder / "replica",
            ports=ports,
            controllers=self.controllers.addresses,
            nameservers=[self.namesrv],
            cluster=CLUSTER,
            name=NAME,
            config={"durability": "relaxed"},
        )

    def start(self) -> None:
        self.controllers.start()
        self.replica.launch()
        self.controllers.wait_ready()
        self.nameserver.wait_listening()
        self.replica.wait_listening()
        deadline = time.monotonic() + patient(30)
        while registered(self.namesrv, NAME).get(0) != self.replica.address:
            assert time.monotonic() < deadline, "no master is registered"
            time.sleep(0.05)

    def make_topic(self, topic: str, queues: int) -> None:
        header = CreateTopicRequestHeader(
            topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6
        )
        answer = call(self.replica.address, request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def send(self, topic: str, bodies: Sequence[str], tags: Sequence[str]) -> None:
        """One after the other over the queues, with the tags in turns."""

        async def send_all() -> None:
            async with Producer([self.namesrv]) as producer:
                for number, body in enumerate(bodies):
                    properties = {"TAGS": tags[number % len(tags)]}
                    await producer.send(topic, body.encode(), queue_id=number % QUEUES, properties=properties)

        asyncio.run(send_all())

    def close(self) -> None:
        self.replica.close()
        self.nameserver.close()
        self.controllers.close()


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallGroup]:
    with PortPool() as ports:
        small = SmallGroup(tmp_path_factory.mktemp("foreign"), ports)
        try:
            small.start()
            yield small
        finally:
            small.close()


@pytest.fixture(scope="module", params=[go_client, cpp_client], ids=["go", "cpp"])
def client(request: pytest.FixtureRequest) -> Client:
    make: Callable[[], Client] = request.param
    try:
        return make()
    except ClientUnavailableError as error:
        unavailable(str(error))


def test_tags_a_group_an_order_and_everybody(group: SmallGroup, client: Client) -> None:
    """All at the same time, each in a group of its own; the consumers start before the messages are sent."""
    topic, folder = f"foreign-{client.name}", group.folder / client.name
    group.make_topic(topic, QUEUES)

    def consumer(name: str, group_name: str, *, mode: str, tags: str = "*") -> Consumer:
        where = {"namesrv": group.namesrv, "group": f"{client.name}-{group_name}", "topic": topic}
        return Consumer(client, folder / name, **where, tags=tags, mode=mode)

    with (
        consumer("tagged", "tagged", mode="cluster", tags="A || CCC") as tagged,
        consumer("first", "shared", mode="cluster") as first,
        consumer("second", "shared", mode="cluster") as second,
        consumer("ordered", "ordered", mode="orderly") as ordered,
        consumer("everybody", "everybody", mode="broadcast") as everybody,
    ):
        each = (tagged, first, second, ordered, everybody)
        members = ((tagged,), (first, second), (ordered,), (everybody,))
        for one in each:
            one.wait_until("its start", lambda one=one: "ready" in one.output())
        # a consumer that begins with a queue may begin at its end
        deadline = time.monotonic() + patient(60)
        while any({got.queue_id for one in some for got in one.received} != {*range(QUEUES)} for some in members):
            assert time.monotonic() < deadline, [(one.name, one.tail()) for one in each]
            group.send(topic, ["are you there"] * QUEUES, ["A"])
            time.sleep(0.3)
        group.send(topic, ALL, TAGS)
        tagged.wait_until("its tags", lambda: messages(tagged) == sorted(RED))
        ordered.wait_until("everything", lambda: messages(ordered) == sorted(ALL))
        everybody.wait_until("everything", lambda: messages(everybody) == sorted(ALL))
        # a queue that changes hands may be handed out twice
        first.wait_until("everything by both", lambda: {*messages(first), *messages(second)} == {*ALL})
        assert {got.tags for got in tagged.received} == {"A", "CCC"}
        for queue_id in range(QUEUES):
            offsets = [got.offset for got in ordered.received if got.queue_id == queue_id]
            assert offsets == sorted(offsets)
        for one in each:
            one.finish()


def messages(consumer: Consumer) -> list[str]:
    """What it received of `ALL`, sorted."""
    return sorted(got.body for got in consumer.received if got.body.startswith("message"))
