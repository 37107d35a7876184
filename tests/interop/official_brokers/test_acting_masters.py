"""RIP-32 with official brokers at our name servers: the master is killed, its slave acts for it, the master comes back.

Two groups without controllers, each at a name server of its own: one in compatibility mode (heartbeats by 322, members
by 105), one that uses 904 and 901. A third, plain master registers at both name servers: delayed messages escape to it.

Each slave starts with a copy of its master's tables, as a replica that an operator makes, because official slaves copy
them for the first time after a minute."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_demo.apache import servers
from rocketmq_demo.apache.processes import JavaProcess
from rocketmq_demo.ports import PortPool
from rocketmq_demo.replica import NameServer
from rocketmq_formats.codes import ResponseCode
from tests.broker.broker_kit import send_request
from tests.gate.patience import patient
from tests.interop.acting import COMPATIBLE, COUNT, DELAY, NEWER, Traffic, committed, delivered
from tests.interop.asking import QUEUES, START, ask, done, ends, log_end, wait
from tests.interop.lab import CLUSTER, FILE_SIZE, JAVA_BROKER, JavaBroker
from tests.topic_requests import topic_request

pytestmark = [
    pytest.mark.interop,
    pytest.mark.in_order,
    pytest.mark.timeout(300),
    pytest.mark.parametrize("group", [COMPATIBLE, NEWER], indirect=True),
]

OTHER = "other"
TABLES = ("topics.json", "consumerOffset.json", "delayOffset.json")


class Group(Traffic):
    """A master and a slave."""

    def add(self) -> None:
        """Start the master, then the slave."""
        self.brokers.append(JavaBroker(self.folder / str(len(self.brokers)), self._start, self.ports))

    def _start(self, folder: Path, port: int) -> JavaProcess:
        number = int(folder.name)
        return start(
            folder,
            port,
            [self.name_server],
            self.name,
            {
                "brokerId": number,
                "brokerRole": "SLAVE" if number else "ASYNC_MASTER",
                "totalReplicas": 2,
                "enableSlaveActingMaster": True,
                "enableRemoteEscape": True,
                "lockInStrictMode": True,
                "slaveReadEnable": True,  # else official slaves refuse every pull, also while they act
                "compatibleWithOldNameSrv": self.compatible,
            },
        )

    def copy_tables(self) -> None:
        """Give the slave, which is not started, the master's tables."""
        source, target = (self.folder / str(number) / "store" / "config" for number in range(2))
        wait("the master's tables", lambda: all((source / name).exists() for name in TABLES))
        target.mkdir(parents=True)
        for name in TABLES:
            shutil.copy(source / name, target)

    def wait_both(self) -> None:
        """Wait until the route has master and slave, and producers may send."""
        both = {0: self.master.address, 1: self.slave.address}
        wait(f"both in the route of {self.name}", lambda: self.route(self.topic) == (both, 6))


class World:
    """Both groups, and the master that has no slave."""

    def __init__(self, folder: Path) -> None:
        self.ports = PortPool()
        self.groups = {mode: Group(mode, folder / mode, self.ports) for mode in (COMPATIBLE, NEWER)}
        self.other: JavaBroker | None = None
        self._folder = folder

    def start(self) -> None:
        """Start all, and wait until all are registered and the slaves copy."""
        groups = self.groups.values()
        for group in groups:
            group.name_server.wait_listening()
            group.add()
        name_servers = [group.name_server for group in groups]
        config = {"brokerId": 0, "brokerRole": "ASYNC_MASTER"}
        self.other = JavaBroker(
            self._folder / OTHER, lambda folder, port: start(folder, port, name_servers, OTHER, config), self.ports
        )
        for group in groups:
            for broker in (group.master, self.other):
                broker.process.wait_port(patient(START))
                done(broker, topic_request(group.delayed, QUEUES))
            done(group.master, topic_request(group.topic, QUEUES))
        for group in groups:
            group.copy_tables()
            group.add()
        for group in groups:
            group.wait_both()

    def close(self) -> None:
        for group in self.groups.values():
            group.close()
        if self.other is not None:
            self.other.process.close()
        self.ports.close()


def start(folder: Path, port: int, name_servers: list[NameServer], name: str, config: servers.Config) -> JavaProcess:
    # Not without the timer wheel: a master that comes back asks its slave for the wheel's check point (60), and does
    # not go online while it is refused.
    return servers.start_broker(
        folder,
        port=port,
        controllers=[],
        nameservers=[one.address for one in name_servers],
        cluster=CLUSTER,
        name=name,
        config={
            "enableControllerMode": False,
            "haListenPort": port + 1,
            "messageDelayLevel": f"{DELAY}s",
            "mappedFileSizeCommitLog": FILE_SIZE,
            "waitTimeMillsInSendQueue": 60_000,  # else a broker that a busy machine stops for 200 ms refuses a send
            **config,
        },
        options=JAVA_BROKER,
    )


@pytest.fixture(scope="module")
def world(apache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Everything started and registered."""
    world = World(tmp_path_factory.mktemp("acting"))
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


def test_both_replicas_lock_for_one_client(group: Group) -> None:
    """They find each other by our name server's answers."""
    wait("all queues", lambda: group.locked(group.master, "one") == set(range(QUEUES)))
    assert group.locked(group.slave, "other") == set()


def test_the_slave_acts_for_a_killed_master(group: Group) -> None:
    """A consumer reads the rest at the acting slave, and commits there; nothing is appended."""
    consumer = group.consume(group.topic)
    group.send(50)
    group.has_read(consumer)
    consumer.suspend()
    group.send(50)
    first = time.monotonic()
    group.send_delayed()
    sent = ends(group.master, group.topic)
    assert sum(sent) == group.numbers
    wait("all of it at the slave", lambda: ends(group.slave, group.topic) == sent)
    wait("delayed messages too", lambda: log_end(group.slave) == log_end(group.master))

    group.master.process.kill9()
    assert time.monotonic() < first + DELAY, "the machine is too slow: the master may have delivered delayed messages"
    only = {0: group.slave.address}
    wait("the slave as 0, read-only", lambda: group.route(group.topic) == (only, 4))
    wait("a notice of the least id", lambda: group.notices(1) > 0)
    consumer.resume()
    group.has_read(consumer)
    wait("everything committed", lambda: committed(group.slave, group.topic) == sent)
    assert group.locked(group.slave, "one") == set(), "it has one vote of two"
    refused = ask(group.slave, send_request(topic=group.topic))
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE, refused.remark
    assert ends(group.slave, group.topic) == sent


def test_delayed_messages_escape_to_another_master_when_they_are_due(group: Group, world: World) -> None:
    consumer = group.consume(group.delayed)
    consumer.wait_until("all delayed messages", lambda: len(set(consumer.bodies)) == COUNT)
    assert all(message.seen - message.born >= DELAY * 1000 for message in consumer.received)
    assert world.other is not None
    assert sum(ends(world.other, group.delayed)) >= COUNT
    wait("the slave's progress", lambda: delivered(group.slave) == COUNT)


def test_nothing_goes_back_when_the_master_returns(group: Group) -> None:
    """It takes from its slave what was committed and delivered there, before it is in the routes."""
    reader, _ = group.consumers
    kept = committed(group.slave, group.topic)
    assert sum(kept) == group.numbers
    reader.suspend()  # else it commits the same at the master
    group.master.process.close()
    group.master.start()
    group.wait_both()
    assert committed(group.master, group.topic) == kept
    assert delivered(group.master) == COUNT
    wait("a notice of the least id", lambda: group.notices(0) > 0)
    wait("all queues", lambda: group.locked(group.master, "one") == set(range(QUEUES)))
    reader.resume()

    group.send(10)
    group.has_read(reader)
    assert len(reader.bodies) == group.numbers
    assert sum(ends(group.master, group.delayed)) == 0
    wait("everything committed", lambda: committed(group.master, group.topic) == ends(group.master, group.topic))
    wait("what is new at the slave", lambda: log_end(group.slave) == log_end(group.master))
