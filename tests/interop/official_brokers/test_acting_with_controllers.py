"""RIP-32 with official brokers under controllers: a broker that restarts while the controllers are away has no role. It
must not take the place of the slave that acts for the master: that slave would cut its log to the other one's end.

The brokers have the operator's file, with ports, folders and sizes that let several run on one machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_demo.apache import servers
from rocketmq_demo.apache.processes import JavaProcess
from rocketmq_demo.replica import NameServer
from rocketmq_formats.topics import TRANS_HALF_TOPIC
from tests.broker.broker_kit import send_request
from tests.gate.patience import patient
from tests.interop.acting import CHECKERS, PREPARED, operators_file, progress
from tests.interop.asking import QUEUES, START, done, ends, log_end, route, wait
from tests.interop.lab import CLUSTER, FILE_SIZE, JAVA_BROKER, QUIET, Group, JavaBroker, Lab
from tests.topic_requests import topic_request

pytestmark = [pytest.mark.interop, pytest.mark.in_order, pytest.mark.timeout(300)]

NAME = "broker-a"
TOPIC = "read-on"
OF_ALL, LATER = 50, 60
"""Messages that every replica has, and those that the third one lacks."""


class ActingGroup(Group):
    """Three brokers with brokerIds 1 to 3, at a name server of ours."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab, NAME)
        self.name_server = NameServer(
            lab.folder / "names",
            port=lab.nameserver_port,
            config={"supportActingMaster": True, "notifyMinBrokerIdChanged": True},
        )

    @property
    def by_id(self) -> list[JavaBroker]:
        """Which of them has which brokerId is only known when they run."""
        return [self.broker(broker_id) for broker_id in (1, 2, 3)]

    def routed(self, addresses: dict[int, str], *, perm: int) -> None:
        """Wait until the route is that."""
        wait(f"the route {addresses}", lambda: route(self.name_server, TOPIC, NAME) == (addresses, perm))

    def close(self) -> None:
        super().close()
        self.name_server.close()

    def _start(self, folder: Path, port: int) -> JavaProcess:
        ordinal = int(folder.name.rpartition("-")[2])
        return servers.start_broker(
            folder,
            port=port,
            controllers=self.lab.controllers.addresses,
            nameservers=[self.name_server.address],
            cluster=CLUSTER,
            name=NAME,
            config={
                **QUIET,
                **operators_file(ordinal, {"actingMaster": "reads"}),
                "haListenPort": port + 1,
                "transactionCheckInterval": 1000,
                "transactionTimeOut": 3_600_000,  # the master asks about none
                "mappedFileSizeCommitLog": FILE_SIZE,
                "waitTimeMillsInSendQueue": 60_000,  # else a broker that a busy machine stops for 200 ms refuses a send
            },
            options=JAVA_BROKER,
        )


@pytest.fixture(scope="module")
def group(apache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ActingGroup]:
    """All three in sync and in the route."""
    lab = Lab(tmp_path_factory.mktemp("controlled"))
    try:
        lab.controllers.start()
        lab.controllers.wait_ready(patient(START))
        group = ActingGroup(lab)
        group.form()
        done(group.brokers[0], topic_request(TOPIC, QUEUES))
        master, slave, third = group.by_id
        group.routed({0: master.address, 2: slave.address, 3: third.address}, perm=6)
        yield group
    finally:
        lab.close()


def send(group: ActingGroup, count: int) -> None:
    """To the first broker."""
    for number in range(count):
        done(group.brokers[0], send_request(b"%d" % number, topic=TOPIC, queue_id=number % QUEUES))


def test_a_broker_without_a_role_leaves_the_acting_slave_alone(group: ActingGroup) -> None:
    master, slave, third = group.by_id
    send(group, OF_ALL)
    properties = "UNIQ_KEY\x010123456789ABCDEF\x02WAIT\x01true\x02TRAN_MSG\x01true\x02PGROUP\x01P\x02"
    done(master, send_request(topic=TOPIC, properties=properties, sys_flag=PREPARED))
    assert progress(master, CHECKERS, TRANS_HALF_TOPIC) <= 0
    third.process.kill9()
    group.wait("a set of two", lambda view: view.in_sync == {1, 2}, START)
    send(group, LATER)
    wait(
        "all of it at the slave",
        lambda: log_end(slave) == log_end(master) and sum(ends(slave, TOPIC)) == OF_ALL + LATER,
    )
    end = log_end(slave)
    for controller in group.lab.controllers:
        controller.kill9()
    master.process.kill9()
    group.routed({0: slave.address}, perm=4)

    group.restart(third)
    wait(
        "its registration",
        lambda: (now := route(group.name_server, TOPIC, NAME)) is not None and third.address in now[0].values(),
    )
    assert (log_end(slave), sum(ends(slave, TOPIC))) == (end, OF_ALL + LATER)
    group.routed({0: slave.address, 1_000_000 + group.brokers.index(third): third.address}, perm=4)


def test_an_acting_slave_that_lets_nothing_escape_passes_over_half_messages(group: ActingGroup) -> None:
    """As without controllers: 5.3.3 tries some times, and goes on. It keeps this progress as the next master.
    Source: rocketmq-all-5.3.3: TransactionalMessageServiceImpl.java."""
    _, slave, _ = group.by_id
    wait("its progress", lambda: progress(slave, CHECKERS, TRANS_HALF_TOPIC) == 1)


def test_it_has_its_role_when_the_controllers_are_back(group: ActingGroup) -> None:
    _, slave, third = group.by_id
    group.lab.controllers.start()
    group.wait(
        "the slave as master, and the third one in sync",
        lambda view: view.in_sync >= {2, 3} and view.master_id == 2,
        START,
    )
    group.routed({0: slave.address, 3: third.address}, perm=6)
    assert log_end(third) == log_end(slave)
    assert sum(ends(slave, TOPIC)) == OF_ALL + LATER


def test_the_topic_is_written_to_again(group: ActingGroup) -> None:
    """It was some seconds old when the first master died: official slaves copy topics every 12 s, and the new master
    makes it again with the first send."""
    _, slave, _ = group.by_id
    done(slave, send_request(topic=TOPIC))
    wait("the message", lambda: sum(ends(slave, TOPIC)) == OF_ALL + LATER + 1)
