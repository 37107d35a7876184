"""Clients that are not Java's at a group of ours, through a kill of its master: they send, and consume with tags, as a
group, in order, and all of them everything.

Their heartbeats are not JSON as Java writes it (`tests/golden/foreign`). No Java is needed here.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketmq_demo.calls import call
from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.ports import PortPool
from rocketmq_demo.replica import NameServer, Replica
from rocketmq_formats.codes import ResponseCode
from tests.gate.patience import patient
from tests.interop.foreign import Client, ClientUnavailableError, Running, cpp_client, go_client, node_client
from tests.interop.native import registered
from tests.needed import unavailable
from tests.topic_requests import topic_request

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900, func_only=True)]

CLUSTER, NAME, TOPIC = "DefaultCluster", "broker-f", "foreign"
QUEUES = 3
TAGS = "A || BB || CCC"
RED = {"A", "CCC"}
_POLL = 0.2
_PATIENCE = patient(90.0)
"""Seconds. The clients ask for routes each 30 s, so they find the next master up to 30 s after the kill."""


class NativeGroup:
    """Three replicas, strict, one controller, one name server."""

    def __init__(self, folder: Path, ports: PortPool) -> None:
        self.folder = folder
        self.controllers = ControllerCluster(folder / "controllers", ports=ports, members=1)
        self.nameserver = NameServer(folder / "namesrv", port=ports.single())
        self.replicas = [
            Replica(
                f"{NAME}-{number}",
                folder=folder / f"replica-{number}",
                ports=ports,
                controllers=self.controllers.addresses,
                nameservers=[self.nameserver.address],
                cluster=CLUSTER,
                name=NAME,
            )
            for number in range(3)
        ]

    def start(self) -> None:
        self.controllers.start()
        for replica in self.replicas:
            replica.launch()
        self.controllers.wait_ready()
        self.nameserver.wait_listening()
        for replica in self.replicas:
            replica.wait_listening()
        wait("all replicas to register", lambda: len(self._registered) == 3 and 0 in self._registered)
        answer = call(self.master.address, topic_request(TOPIC, QUEUES))
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    @property
    def master(self) -> Replica:
        return next(one for one in self.replicas if one.address == self._registered.get(0))

    @property
    def _registered(self) -> dict[int, str]:
        return registered(self.nameserver.address, NAME)

    def lose_master(self) -> None:
        """Until another one is registered."""
        old = self.master
        old.process.kill9()
        wait("another master", lambda: self._registered.get(0) not in {None, old.address})

    def close(self) -> None:
        for replica in self.replicas:
            replica.close()
        self.nameserver.close()
        self.controllers.close()


@dataclass(frozen=True)
class Group:
    """Consumers that share a group, as the client `client` runs them."""

    client: str
    mode: str
    tags: str
    members: list[Running]

    @property
    def bodies(self) -> set[str]:
        return {one.body for member in self.members for one in member.messages}

    @property
    def queues(self) -> set[int]:
        return {one.queue_id for member in self.members for one in member.messages}

    def expects(self, after: dict[str, str]) -> set[str]:
        """The bodies that it gets of what was sent: tags by body."""
        return {body for body, tag in after.items() if self.tags == "*" or tag in RED}

    def check(self) -> None:
        """It got only its tags, and in order what it gets in order."""
        if self.tags != "*":
            assert {one.tags for member in self.members for one in member.messages} == RED
        if self.mode == "orderly":
            for queue_id in range(QUEUES):
                offsets = [one.offset for one in self.members[0].messages if one.queue_id == queue_id]
                firsts = list(dict.fromkeys(offsets))  # a message may come again after the kill
                assert firsts == sorted(firsts)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[NativeGroup]:
    with PortPool() as ports:
        native = NativeGroup(tmp_path, ports)
        try:
            native.start()
            yield native
        finally:
            native.close()


@pytest.fixture(scope="module")
def clients() -> list[Client]:
    try:
        return [go_client(), cpp_client(), node_client()]
    except ClientUnavailableError as error:
        unavailable(str(error))


class Processes:
    """All processes of the clients, each in a folder of its own."""

    def __init__(self, stack: ExitStack, group: NativeGroup) -> None:
        self._stack, self._group = stack, group

    def run(self, client: Client, name: str, group: str, *, mode: str, tags: str) -> Running:
        where = {"namesrv": self._group.nameserver.address, "group": f"{client.name}-{group}", "topic": TOPIC}
        folder = self._group.folder / client.name / name
        return self._stack.enter_context(Running(client, folder, **where, tags=tags, mode=mode))

    def consumers(self, client: Client) -> Iterator[Group]:
        for name, count, mode, tags in (
            ("tagged", 1, "cluster", "A || CCC"),
            ("shared", 2, "cluster", "*"),
            ("ordered", 1, "orderly", "*"),
            ("everybody", 1, "broadcast", "*"),
        ):
            if mode in client.modes:
                members = [self.run(client, f"{name}-{one}", name, mode=mode, tags=tags) for one in range(count)]
                yield Group(client.name, mode, tags, members)


def test_all_ways_to_send_and_to_consume_through_a_kill_of_the_master(
    clients: list[Client], group: NativeGroup
) -> None:
    """All at the same time and in one topic, so each client reads what the others wrote."""
    with ExitStack() as stack:
        processes = Processes(stack, group)
        groups = [one for client in clients for one in processes.consumers(client)]
        consumers = [member for one in groups for member in one.members]
        for consumer in consumers:
            consumer.wait_until("its start", lambda consumer=consumer: "ready" in consumer.output())
        senders = [processes.run(client, "sender", "senders", mode="send", tags=TAGS) for client in clients]
        # a consumer that begins with a queue may begin at its end
        wait("all queues", lambda: all(one.queues == {*range(QUEUES)} for one in groups), groups)
        before = sent(senders)
        group.lose_master()
        wanted = {sender.name: len(sender.messages) + 5 for sender in senders}
        wait("sends to the next master", lambda: all(len(one.messages) >= wanted[one.name] for one in senders))
        for sender in senders:
            sender.close()
        after = {body: tag for body, tag in sent(senders).items() if body not in before}
        for one in groups:
            wait(f"all of {one.client}, {one.mode}", lambda one=one: one.bodies >= one.expects(after), [one])
            one.check()
        for consumer in consumers:
            consumer.close_stdin()  # all leave at once
        for consumer in consumers:
            consumer.finish()


def sent(senders: list[Running]) -> dict[str, str]:
    """What was acknowledged: tags by body."""
    return {one.body: one.tags for sender in senders for one in sender.messages}


def wait(what: str, condition: Callable[[], bool], groups: list[Group] | None = None) -> None:
    """Wait until `condition` holds; an error shows the ends of the groups' output."""
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            tails = [(member.name, member.tail()) for one in groups or [] for member in one.members]
            raise TimeoutError(f"waited {_PATIENCE:g} s for {what}: {tails}")
        time.sleep(_POLL)
