"""The promises of RIP-32 with official brokers under our controllers: all controllers and the masters are killed, the
slaves act, the controllers come back and elect.

Two groups, each at a name server of its own: one in compatibility mode with three replicas and strict locks, and one
without it, with two replicas and without strict locks. Both have the operator's file. At each name server there is one
more master, without slaves and controllers: what is due escapes to it."""

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_demo.apache import servers
from rocketmq_demo.apache.processes import JavaProcess
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.broker_admin import TopicRequestHeader
from rocketmq_formats.remoting.command import request as command
from tests.broker.broker_kit import send_request
from tests.gate.patience import patient
from tests.interop import lab
from tests.interop.acting import (
    COMPATIBLE,
    COUNT,
    DELAY,
    NEWER,
    Traffic,
    clients,
    committed,
    delivered,
    operators_file,
)
from tests.interop.asking import QUEUES, START, ask, done, ends, log_end, wait
from tests.interop.lab import CLUSTER, FILE_SIZE, JAVA_BROKER, QUIET, JavaBroker, Lab
from tests.lab.clients import Committer, PushConsumer
from tests.topic_requests import topic_request

pytestmark = [
    pytest.mark.interop,
    pytest.mark.in_order,
    pytest.mark.timeout(300),
    pytest.mark.parametrize("group", [COMPATIBLE, NEWER], indirect=True),
]

OTHER = "other"
ALL = set(range(QUEUES))
SHARED = {
    **QUIET,
    "timerWheelEnable": True,
    "messageDelayLevel": f"{DELAY}s",
    "transactionCheckInterval": 1000,
    "transactionTimeOut": DELAY * 1000,
    "transactionCheckMax": 1_000_000,  # a half message is there until its producer is
    "mappedFileSizeCommitLog": FILE_SIZE,
    "waitTimeMillsInSendQueue": 60_000,  # else a broker that a busy machine stops for 200 ms refuses a send
}


class Replicas(lab.Group):
    """Brokers with brokerIds from 1 in the order of their starts, at a name server of ours."""

    def __init__(self, laboratory: Lab, traffic: "Group", count: int) -> None:
        super().__init__(laboratory, traffic.name)
        self._traffic = traffic
        self._spec = {
            "actingMaster": "readsAndEscape",
            "replicas": count,
            "config": {
                "compatibleWithOldNameSrv": str(traffic.compatible).lower(),
                "lockInStrictMode": str(traffic.strict).lower(),
            },
        }
        self.ids = set(range(1, count + 1))

    def form(self) -> None:
        for broker_id in sorted(self.ids):
            self._add()
            known = set(range(1, broker_id + 1))
            self.wait(f"{known} in sync", lambda view, known=known: view.in_sync == known, START)
        self.wait("broker 1 as master", lambda view: view.master_id == 1, START)

    def _start(self, folder: Path, port: int) -> JavaProcess:
        ordinal = int(folder.name.rpartition("-")[2])
        return servers.start_broker(
            folder,
            port=port,
            controllers=self.lab.controllers.addresses,
            nameservers=[self._traffic.name_server.address],
            cluster=CLUSTER,
            name=self.name,
            config={**SHARED, **operators_file(ordinal, self._spec), "haListenPort": port + 1},
            options=JAVA_BROKER,
        )


class Group(Traffic):
    """`strict`: with strict locks."""

    def __init__(self, mode: str, laboratory: Lab) -> None:
        super().__init__(mode, laboratory.folder / mode, laboratory.ports)
        self.strict = self.compatible
        self.replicas = Replicas(laboratory, self, 3 if self.strict else 2)
        self.brokers = self.replicas.brokers
        self.ordered = f"ordered-{mode}"
        self.ordered_count = 0
        self.other = JavaBroker(self.folder / OTHER, self._start_other, laboratory.ports)
        self.retries = f"%RETRY%{clients(self.popped)}_{self.popped}"
        self.escaping = (self.delayed, self.timed, self.half, self.popped)
        """Topics that the other master has too."""
        self.topics = (self.topic, self.ordered, *self.escaping)

    @property
    def acting(self) -> dict[int, str]:
        """The route while the slave acts."""
        return {0 if number == 2 else number: address for number, address in self.followers.items()}

    @property
    def followers(self) -> dict[int, str]:
        """Addresses by brokerId, without the first master."""
        return {number: broker.address for number, broker in enumerate(self.brokers, 1) if number > 1}

    def form(self) -> None:
        self.replicas.form()
        self.other.process.wait_port(patient(START))
        for topic in self.topics:
            done(self.master, topic_request(topic, QUEUES))
        for topic in self.escaping:
            done(self.other, topic_request(topic, QUEUES))

    def _start_other(self, folder: Path, port: int) -> JavaProcess:
        return servers.start_broker(
            folder,
            port=port,
            controllers=[],
            nameservers=[self.name_server.address],
            cluster=CLUSTER,
            name=OTHER,
            config={
                **SHARED,
                "enableControllerMode": False,
                "brokerId": 0,
                "brokerRole": "ASYNC_MASTER",
                "haListenPort": port + 1,
            },
            options=JAVA_BROKER,
        )

    def known(self) -> None:
        """Wait until each replica has the topics, which official slaves copy every 12 s."""
        for broker in self.brokers:
            for topic in self.topics:
                question = command(RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader(topic=topic))
                wait("topics", lambda question=question, to=broker: ask(to, question).code == ResponseCode.SUCCESS)
        self.routed({0: self.master.address, **self.followers}, perm=6)

    def send_ordered(self, count: int) -> None:
        for _ in range(count):
            queue = self.ordered_count % QUEUES
            done(self.master, send_request(b"%d" % self.ordered_count, topic=self.ordered, queue_id=queue))
            self.ordered_count += 1

    @property
    def in_order(self) -> dict[int, list[str]]:
        """What consumers have to see, by queue."""
        return {queue: [str(number) for number in range(queue, self.ordered_count, QUEUES)] for queue in range(QUEUES)}

    def routed(self, addresses: dict[int, str], *, perm: int) -> None:
        for topic in (self.topic, self.ordered):
            wait(f"the route {addresses}", lambda topic=topic: self.route(topic) == (addresses, perm))

    def copied(self, source: JavaBroker, *others: JavaBroker) -> None:
        """Wait until these replicas have the log of `source`."""
        for other in others:
            wait("the log", lambda other=other: log_end(other) == log_end(source))

    def close(self) -> None:
        self.other.process.close()
        super().close()


class World:
    """The controllers and both groups."""

    def __init__(self, folder: Path) -> None:
        self.lab = Lab(folder)
        self.groups = {mode: Group(mode, self.lab) for mode in (COMPATIBLE, NEWER)}

    def start(self) -> None:
        self.lab.controllers.start()
        self.lab.controllers.wait_ready(patient(START))
        groups = self.groups.values()
        for group in groups:
            group.name_server.wait_listening()
            group.form()
        for group in groups:
            group.known()

    def kill_controllers(self) -> None:
        for controller in self.lab.controllers:
            if controller.alive:
                controller.kill9()

    def close(self) -> None:
        for group in self.groups.values():
            group.close()
        self.lab.close()


def in_order(members: list[PushConsumer]) -> dict[int, list[str]]:
    """Bodies by queue, in the order in which members of a consumer group saw them."""
    found = defaultdict(list)
    for message in sorted((one for member in members for one in member.received), key=lambda message: message.seen):
        found[message.queue_id].append(message.body)
    return found


@pytest.fixture(scope="module")
def world(apache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Everything started and registered."""
    world = World(tmp_path_factory.mktemp("promises"))
    try:
        world.start()
        yield world
    finally:
        world.close()


@pytest.fixture
def group(world: World, request: pytest.FixtureRequest) -> Group:
    return world.groups[request.param]


def test_heartbeats_and_questions_are_those_of_the_mode(group: Group) -> None:
    group.speaks_its_mode()


def test_replicas_lock_together_only_in_strict_mode(group: Group) -> None:
    wait("all queues", lambda: group.locked(group.master, "one") == ALL)
    assert group.locked(group.slave, "other") == (set() if group.strict else ALL)


def test_the_slave_acts_without_controllers_and_master(group: Group, world: World) -> None:
    """A consumer reads the rest at the acting slave, and commits there; nothing is appended."""
    consumer = group.consume(group.topic)
    orderly = group.consume(group.ordered, orderly=True)
    group.send(50)
    group.send_ordered(50)
    group.has_read(consumer)
    orderly.wait_until("all in order", lambda: in_order([orderly]) == group.in_order)
    consumer.suspend()
    orderly.suspend()
    group.send(50)
    group.send_ordered(50)
    group.send_half()
    first = time.monotonic()
    group.send_delayed()
    group.send_timed()
    group.pop()
    sent = ends(group.master, group.topic)
    assert sum(sent) == group.numbers
    group.copied(group.master, *group.brokers[1:])
    wait("all of it at the slave", lambda: ends(group.slave, group.topic) == sent)

    world.kill_controllers()
    group.master.process.kill9()
    assert time.monotonic() < first + DELAY, "the machine is too slow: the master may have delivered delayed messages"
    group.routed(group.acting, perm=4)
    consumer.resume()
    orderly.resume()
    group.has_read(consumer)
    wait("everything committed", lambda: committed(group.slave, group.topic) == sent)
    refused = ask(group.slave, send_request(topic=group.topic))
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE, refused.remark
    assert ends(group.slave, group.topic) == sent


def test_locks_at_the_acting_slave(group: Group) -> None:
    """Two of three are a majority. Without strict mode it asks no other, and knows who has its locks."""
    holder, stranger = ("one", "other") if group.strict else ("other", "one")
    wait("all queues", lambda: group.locked(group.slave, holder) == ALL)
    assert group.locked(group.slave, stranger) == set()


def test_an_orderly_consumer_goes_on_at_the_acting_slave(group: Group) -> None:
    """It needs locks there. A second member takes over half of the queues."""
    first = group.consumers[1]
    first.wait_until("all in order", lambda: in_order([first]) == group.in_order)
    wait("everything committed", lambda: committed(group.slave, group.ordered) == ends(group.slave, group.ordered))
    second = group.consume(group.ordered, orderly=True)
    second.wait_until("half of the queues", lambda: second.queues is not None and len(second.queues) == QUEUES // 2)
    wait("the rest at the first", lambda: first.queues is not None and len(first.queues) == QUEUES // 2)


def test_delayed_messages_escape_when_they_are_due(group: Group) -> None:
    wait("all delayed messages at the other master", lambda: sum(ends(group.other, group.delayed)) >= COUNT)
    wait("the slave's progress", lambda: delivered(group.slave) == COUNT)


def test_timer_messages_escape_when_they_are_due(group: Group) -> None:
    wait("all timer messages at the other master", lambda: sum(ends(group.other, group.timed)) >= COUNT)


def test_half_messages_escape_and_their_producers_are_asked(group: Group) -> None:
    """The other master asks, perhaps again before the answer is there, and what is committed is there."""
    assert sum(ends(group.other, group.half)) == 0
    with Committer(
        group.folder / "committer", nameservers=group.name_server.address, group=clients(group.half), topic=group.half
    ):
        wait("all that was committed at the other master", lambda: sum(ends(group.other, group.half)) >= COUNT)


def test_popped_messages_come_again_from_another_master(group: Group) -> None:
    """Check points escape when they are due; whoever has them reads the messages at the acting slave."""
    wait("all messages to pop again", lambda: sum(ends(group.other, group.retries)) >= COUNT)


def test_nothing_goes_back_when_the_controllers_return(group: Group, world: World) -> None:
    """They elect the slave that acted; the first master comes back as its slave."""
    reader = group.consumers[0]
    timed = (group.delayed, group.timed)
    escaped = [ends(group.other, topic) for topic in timed]
    kept = committed(group.slave, group.topic)
    assert sum(kept) == group.numbers
    reader.suspend()  # else it commits the same again
    world.lab.controllers.start()
    group.replicas.wait("the slave as master", lambda view: view.master_id == 2, START)
    group.routed({**group.acting, 0: group.slave.address}, perm=6)
    group.replicas.restart(group.master)
    group.replicas.wait("all in sync", lambda view: view.in_sync == group.replicas.ids, START)
    group.routed({**group.acting, 1: group.master.address}, perm=6)
    assert committed(group.slave, group.topic) == kept
    assert delivered(group.slave) == COUNT
    reader.resume()

    group.brokers[:2] = group.brokers[1::-1]
    group.send(10)
    group.has_read(reader)
    assert len(reader.bodies) == group.numbers
    group.copied(group.master, *group.brokers[1:])
    assert not any(sum(ends(group.master, topic)) for topic in (*timed, group.half, group.retries))
    assert [ends(group.other, topic) for topic in timed] == escaped


def test_nothing_was_out_of_order(group: Group) -> None:
    members = group.consumers[1:]
    group.send_ordered(50)
    members[0].wait_until("all in order", lambda: in_order(members) == group.in_order)


def test_running_consumers_go_on_whoever_is_elected(group: Group, world: World) -> None:
    """The master is back before the controllers are, without a role, and another slave lives in one of the groups. The
    next master need not have what was committed at the acting slave: running consumers commit it again."""
    reader = group.consumers[0]
    reader.suspend()
    group.send(50)
    sent = ends(group.master, group.topic)
    wait("all of it at the slave", lambda: ends(group.slave, group.topic) == sent)
    world.kill_controllers()
    group.master.process.kill9()
    rest = {number: broker.address for number, broker in enumerate(group.brokers, 1) if number > 2}
    acting = {0: group.slave.address, **rest}
    group.routed(acting, perm=4)
    reader.resume()
    group.has_read(reader)
    wait("everything committed", lambda: committed(group.slave, group.topic) == sent)

    group.replicas.restart(group.master)
    group.routed({**acting, 1_000_001: group.master.address}, perm=4)
    world.lab.controllers.start()
    view = group.replicas.wait(
        "all in sync", lambda view: view.in_sync == group.replicas.ids and view.master_id is not None, START
    )
    elected = group.replicas.broker(view.master_id)
    wait("everything committed at the master", lambda: committed(elected, group.topic) == sent)
    assert len(reader.bodies) == group.numbers
