"""RIP-32 with official brokers under our name server and our controller: a slave serves while there is no master.

Two groups of two official brokers each lose their master. `plain` has fixed ids, no controllers, and talks to the name
server as an old one is talked to (compatibleWithOldNameSrv); `controlled` has a controller, which dies with the master,
and uses the light heartbeat (904) and the member group (901). A third group lives on and takes what escapes.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketmq_demo.apache import servers
from rocketmq_demo.apache.processes import JavaProcess
from rocketmq_demo.calls import call
from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.ports import PortPool
from rocketmq_demo.replica import NameServer
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.client import (
    PULL_SUBSCRIPTION,
    GetMaxOffsetRequestHeader,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.remoting.nameserver import (
    GetBrokerMemberGroupRequestHeader,
    GetBrokerMemberGroupResponseBody,
    GetRouteInfoRequestHeader,
    TopicRouteData,
)
from rocketmq_formats.remoting.send import SendMessageRequestHeader
from tests.gate.patience import patient
from tests.interop.lab import JAVA_BROKER
from tests.topic_requests import topic_request

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

CLUSTER, TOPIC, CONSUMERS = "DefaultCluster", "escaping", "acting-readers"
PLAIN, CONTROLLED, LIVING = "plain", "controlled", "living"
SLAVES = {PLAIN: 1, CONTROLLED: 2}
"""The id of the broker that is left."""
DELAYS = "1s 20s"
DELAYED = "SCHEDULE_TOPIC_XXXX"
_START = 120.0
_POLL = 0.1


class World:
    """The processes of this module."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = PortPool()
        self.controllers = ControllerCluster(folder / "controllers", ports=self.ports, group="acting")
        acting = {"supportActingMaster": True, "notifyMinBrokerIdChanged": True}
        self.nameserver = NameServer(folder / "names", port=self.ports.single(), config=acting)
        self.brokers: dict[str, JavaProcess] = {}
        self.starts: dict[str, Callable[[], JavaProcess]] = {}

    def start(self) -> None:
        self.controllers.start()
        self.nameserver.wait_listening()
        plain = {"enableControllerMode": False, "compatibleWithOldNameSrv": True}
        controlled = {"allAckInSyncStateSet": True, "compatibleWithOldNameSrv": False}
        self._broker(PLAIN, 0, {**plain, "brokerRole": "SYNC_MASTER", "brokerId": 0})
        self._broker(CONTROLLED, 1, controlled)
        self._broker(LIVING, 0, {**plain, "brokerRole": "ASYNC_MASTER", "totalReplicas": 1})
        for name in (PLAIN, CONTROLLED, LIVING):
            self._wait_members(name, {0})
        self._broker(PLAIN, 1, {**plain, "brokerRole": "SLAVE", "brokerId": 1})
        self._broker(CONTROLLED, 2, controlled)
        for name in (PLAIN, CONTROLLED):
            self._wait_members(name, {0, SLAVES[name]})

    def _broker(self, name: str, number: int, config: servers.Config) -> None:
        label = f"{name}-{number}"
        port = self.ports.broker()

        def start() -> JavaProcess:
            return servers.start_broker(
                self.folder / label,
                port=port,
                controllers=self.controllers.addresses,
                nameservers=[self.nameserver.address],
                cluster=CLUSTER,
                name=name,
                config={
                    "enableSlaveActingMaster": True,
                    "enableRemoteEscape": True,
                    "slaveReadEnable": True,
                    "lockInStrictMode": True,
                    "totalReplicas": 2,
                    "messageDelayLevel": DELAYS,
                    **config,
                },
                options=JAVA_BROKER,
            )

        self.starts[label] = start
        self.brokers[label] = start()

    def restart(self, label: str) -> None:
        self.brokers[label].close()
        self.brokers[label] = self.starts[label]()

    # what the name server says

    def members(self, name: str) -> dict[int, str]:
        """The living members of a group (901)."""
        header = GetBrokerMemberGroupRequestHeader(cluster_name=CLUSTER, broker_name=name)
        answer = call(self.nameserver.address, request(RequestCode.GET_BROKER_MEMBER_GROUP, header))
        group = decode_body(GetBrokerMemberGroupResponseBody, answer.body).broker_member_group
        return {} if group is None else dict(group.broker_addrs)

    def routed(self, name: str) -> tuple[dict[int, str], int] | None:
        """What clients see of a group in the topic's route: its addresses and permission."""
        header = GetRouteInfoRequestHeader(topic=TOPIC)
        answer = call(self.nameserver.address, request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header))
        if answer.code != ResponseCode.SUCCESS:
            return None
        route = decode_body(TopicRouteData, answer.body)
        addresses = [dict(broker.broker_addrs) for broker in route.broker_datas if broker.broker_name == name]
        perms = [queue.perm for queue in route.queue_datas if queue.broker_name == name]
        return (addresses[0], perms[0]) if addresses and perms else None

    def _wait_members(self, name: str, ids: set[int]) -> None:
        self.wait(f"{name} with ids {ids}", lambda: self.members(name).keys() == ids)

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + patient(_START)
        while True:
            try:
                if condition():
                    return
            except OSError:  # the process does not listen yet
                pass
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {_START:g} s for {what}")
            time.sleep(_POLL)

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.close()
        self.nameserver.close()
        self.controllers.close()
        self.ports.close()


@pytest.fixture(scope="module")
def world(apache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("acting"))
    try:
        world.start()
        yield world
    finally:
        world.close()


def test_the_last_slaves_serve_until_a_master_is_back(world: World) -> None:
    stories = [Story(world, PLAIN), Story(world, CONTROLLED)]
    # step by step in both groups, so that they wait at the same time
    for step in (Story.prepare, Story.lose_the_master, Story.serve, Story.escape, Story.return_the_master):
        for story in stories:
            step(story)


class Story:
    """What happens to one group."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.slave_id = SLAVES[name]
        self.first = f"{name}-{0 if name == PLAIN else 1}"
        """The broker that is master."""
        self.master, self.slave = world.members(name)[0], world.members(name)[self.slave_id]
        (self.living,) = world.members(LIVING).values()
        self.sent = [f"{name} {number}".encode() for number in range(3)]
        self.late = f"late {name}".encode()

    def prepare(self) -> None:
        """Both have the messages, and one client has the lock by two votes."""
        for address in (self.master, self.living):
            assert call(address, topic_request(TOPIC, queues=1)).code == ResponseCode.SUCCESS
        route = {0: self.master, self.slave_id: self.slave}, 6
        self.wait("the topic's route", lambda: self.world.routed(self.name) == route)
        for body in self.sent:
            assert send(self.master, body).code == ResponseCode.SUCCESS
        self.wait("the slave's copy of the messages", lambda: pull(self.slave).code == ResponseCode.SUCCESS)
        pull(self.master)  # which makes the group
        commit(self.master, 1)
        self.wait("both votes for a lock", lambda: lock(self.master) == {0})

    def lose_the_master(self) -> None:
        assert send(self.master, self.late, delay=2).code == ResponseCode.SUCCESS
        self.wait("the slave's copy of the delayed message", lambda: length(self.slave, DELAYED, 1) == 1)
        self.living_end = length(self.living)
        if self.name == CONTROLLED:
            self.world.controllers.close()
        self.world.brokers[self.first].kill9()

    def serve(self) -> None:
        """Reads, offsets; no sends, and no lock by one vote of two."""
        self.wait("the slave as acting master", lambda: self.world.routed(self.name) == ({0: self.slave}, 4))
        assert self.world.members(self.name) == {self.slave_id: self.slave}
        found = pull(self.slave).body
        assert all(body in found for body in self.sent)
        assert send(self.slave, b"refused").code == ResponseCode.SERVICE_NOT_AVAILABLE
        commit(self.slave, 3)
        assert lock(self.slave) == set()

    def escape(self) -> None:
        """The delayed message arrives at a master of another group."""
        self.wait("the delayed message", lambda: self.late in pull(self.living, self.living_end).body)

    def return_the_master(self) -> None:
        if self.name == CONTROLLED:
            self.world.controllers.start()
        self.world.restart(self.first)
        self.wait("a route that may be written", lambda: (self.world.routed(self.name) or ({}, 0))[1] == 6)
        master = self.world.members(self.name)[0]
        self.wait("a master that takes sends", lambda: send(master, b"again").code == ResponseCode.SUCCESS)
        assert committed(master) == 3, "what was committed at the acting master"

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        self.world.wait(f"{what} in {self.name}", condition)


def send(address: str, body: bytes, *, delay: int = 0) -> RemotingCommand:
    header = SendMessageRequestHeader(
        producer_group="acting-senders",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp=int(time.time() * 1000),
        flag=0,
        properties=f"DELAY\x01{delay}\x02" if delay else "",
        reconsume_times=0,
    )
    return call(address, request(RequestCode.SEND_MESSAGE, header, body=body), timeout=10.0)


def pull(address: str, offset: int = 0) -> RemotingCommand:
    header = PullMessageRequestHeader(
        consumer_group=CONSUMERS,
        topic=TOPIC,
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription="*",
        expression_type="TAG",
    )
    return call(address, request(RequestCode.PULL_MESSAGE, header))


def length(address: str, topic: str = TOPIC, queue_id: int = 0) -> int:
    header = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
    answer = call(address, request(RequestCode.GET_MAX_OFFSET, header))
    return decode_header(OffsetResponseHeader, answer.ext_fields or {}).offset


def commit(address: str, offset: int) -> None:
    header = UpdateConsumerOffsetRequestHeader(consumer_group=CONSUMERS, topic=TOPIC, queue_id=0, commit_offset=offset)
    assert call(address, request(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == ResponseCode.SUCCESS


def committed(address: str) -> int:
    header = QueryConsumerOffsetRequestHeader(consumer_group=CONSUMERS, topic=TOPIC, queue_id=0)
    answer = call(address, request(RequestCode.QUERY_CONSUMER_OFFSET, header))
    return decode_header(OffsetResponseHeader, answer.ext_fields or {}).offset


def lock(address: str) -> set[int]:
    """Queues of the topic that one client holds now at the asked broker's group."""
    queue = MessageQueue(topic=TOPIC, broker_name="any", queue_id=0)
    body = LockBatchRequestBody(consumer_group=CONSUMERS, client_id="one", mq_set=frozenset({queue}))
    answer = call(address, request(RequestCode.LOCK_BATCH_MQ, body=encode_body(body)), timeout=10.0)
    return {queue.queue_id for queue in decode_body(LockBatchResponseBody, answer.body).lock_ok_mq_set}
