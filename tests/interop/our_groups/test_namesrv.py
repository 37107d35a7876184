"""Official brokers, tools and clients at our name servers, one of which hosts the brokers' controller.

Two name servers: the first has a controller in its process (enableControllerInNamesrv), the second has none. A group of
two official brokers in controller mode and a plain official master register at both.
"""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketmq_demo.apache import ledger, servers
from rocketmq_demo.apache.processes import JavaProcess
from rocketmq_demo.calls import call
from rocketmq_demo.ports import HOST, PortPool
from rocketmq_demo.replica import NameServer
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.controller import BrokerReplicasInfo
from rocketmq_formats.remoting.nameserver import (
    GetRouteInfoRequestHeader,
    TopicRouteData,
)
from tests.gate.patience import patient
from tests.interop.lab import JAVA_BROKER
from tests.interop.native import registered
from tests.lab.mqadmin import Tools

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

CLUSTER, GROUP, PLAIN = "DefaultCluster", "in-control", "plain"
MAKE_TOPIC = f"updateTopic -t made -c {CLUSTER} -r 3 -w 3"
_START = 120.0
_POLL = 0.05


class World:
    """The processes of this module."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = PortPool()
        controller = self.ports.block()
        secret = folder / "raft.secret"
        secret.write_text("only for this test")
        self.controller = f"{HOST}:{controller}"
        hosting = {
            "enableControllerInNamesrv": True,
            "controllerDLegerPeers": f"n0-{self.controller}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": folder / "controller",
            "controllerRaftSecretFile": secret,
            "controllerListenHost": HOST,
        }
        self.nameservers = [
            NameServer(folder / "names-0", port=self.ports.single(), config=hosting),
            NameServer(folder / "names-1", port=self.ports.single()),
        ]
        self.brokers: dict[str, JavaProcess] = {}
        self.tools = Tools(folder / "mqadmin")

    def start(self) -> None:
        """Start the brokers as soon as the name servers listen; wait until all of them are registered everywhere."""
        for server in self.nameservers:
            server.wait_listening()
        self._broker("a", GROUP, {})
        self._broker("b", GROUP, {})
        self._broker("p", PLAIN, {"enableControllerMode": False, "brokerRole": "ASYNC_MASTER", "brokerId": 0})
        self.wait("a master and a slave", lambda: len(self.ids(GROUP)) == 2 and 0 in self.ids(GROUP))
        self.wait("the plain master", lambda: self.ids(PLAIN) == {0})
        self.wait("both replicas in sync", lambda: self.count_in_sync() == 2)
        self.mqadmin(MAKE_TOPIC)

    def _broker(self, label: str, name: str, config: servers.Config) -> None:
        self.brokers[label] = servers.start_broker(
            self.folder / label,
            port=self.ports.broker(),
            controllers=[self.controller],
            nameservers=[server.address for server in self.nameservers],
            cluster=CLUSTER,
            name=name,
            config={"allAckInSyncStateSet": True, "registerNameServerPeriod": 10_000, **config},
            options=JAVA_BROKER,
        )

    @property
    def addresses(self) -> str:
        return ";".join(server.address for server in self.nameservers)

    def count_in_sync(self) -> int:
        """How many replicas of the group could be elected."""
        question = request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=f'["{GROUP}"]'.encode())
        answer = call(self.controller, question)
        if answer.code != ResponseCode.SUCCESS:
            return 0
        return len(decode_body(BrokerReplicasInfo, answer.body).replicas_info_table[GROUP].in_sync_replicas)

    def members(self, number: int, name: str) -> dict[int, str]:
        """The addresses of a broker name by name server `number`."""
        return registered(self.nameservers[number].address, name)

    def ids(self, name: str) -> set[int]:
        """The ids of a broker name that all name servers agree on."""
        first, *others = (set(self.members(number, name)) for number in range(len(self.nameservers)))
        return first if all(other == first for other in others) else set()

    def route(self, topic: str, number: int = 0) -> TopicRouteData | None:
        """A topic's route by name server `number`; None if it has none."""
        header = GetRouteInfoRequestHeader(topic=topic)
        answer = call(self.nameservers[number].address, request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header))
        return decode_body(TopicRouteData, answer.body) if answer.code == ResponseCode.SUCCESS else None

    def wait(self, what: str, condition: Callable[[], bool], timeout: float = _START) -> float:
        """Seconds until `condition` held."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > patient(timeout):
                raise TimeoutError(f"waited {timeout:g} s for {what}; {GROUP}: {self.members(0, GROUP)}")
            time.sleep(_POLL)
        return time.monotonic() - began

    def mqadmin(self, *commands: str, number: int = 0) -> list[str]:
        """The official tool's output for each command, at name server `number`."""
        found = []
        for command in commands:
            printed, complaint = self.tools.run([*command.split(), "-n", self.nameservers[number].address])
            assert "Exception" not in complaint + printed, complaint + printed
            found.append(printed)
        return found

    def close(self) -> None:
        self.tools.close()
        for broker in self.brokers.values():
            broker.close()
        for server in self.nameservers:
            server.close()
        self.ports.close()


@pytest.fixture(scope="module")
def world(apache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Everything started and registered."""
    world = World(tmp_path_factory.mktemp("namesrv"))
    try:
        world.start()
        yield world
    finally:
        world.close()


def test_clusters_and_topics_by_tools(world: World) -> None:
    listed, _ = world.mqadmin("clusterList", MAKE_TOPIC, number=1)
    rows = [line.split() for line in listed.splitlines() if CLUSTER in line]
    slave = max(world.ids(GROUP))  # 1 or 2: whichever broker came second
    assert sorted((row[1], row[2]) for row in rows) == [(GROUP, "0"), (GROUP, str(slave)), (PLAIN, "0")]
    for number in range(2):
        world.wait("the route", lambda number=number: _brokers(world.route("made", number)) == {GROUP, PLAIN}, 30)
    routed, topics, wiped = world.mqadmin("topicRoute -t made", "topicList", f"wipeWritePerm -b {PLAIN}")
    assert {*re.findall(r'"brokerName":"([^"]+)"', routed)} == {GROUP, PLAIN}
    assert '"writeQueueNums":3' in routed
    assert "made" in topics.split()
    assert re.search(rf"wipe write perm of broker\[{PLAIN}\].* OK, [1-9]", wiped)
    assert _perms(world.route("made")) == {PLAIN: 4, GROUP: 6}


def test_permission_configuration_and_kv_by_tools(world: World) -> None:
    world.mqadmin(
        f"addWritePerm -b {PLAIN}",
        f"updateKvConfig -s ORDER_TOPIC_CONFIG -k made -v {GROUP}:3",
        "updateNamesrvConfig -k orderMessageEnable -v true",
    )
    route = world.route("made")
    assert route is not None
    assert _perms(route) == {PLAIN: 6, GROUP: 6}
    assert route.order_topic_conf == f"{GROUP}:3"
    (configuration,) = world.mqadmin("getNamesrvConfig")
    assert re.search(r"orderMessageEnable\s+=\s+true", configuration)


def test_a_failover_is_routed_and_nothing_is_lost(world: World) -> None:
    world.wait("the topic's route", lambda: _brokers(world.route("made")) == {GROUP, PLAIN}, 30)
    world.wait("both replicas in sync", lambda: world.count_in_sync() == 2)  # else no one can be elected
    old = world.members(0, GROUP)[0]
    master = next(broker for label, broker in world.brokers.items() if f":{broker.ports[1]}" == old[-6:])
    with ledger.Ledger(world.folder / "ledger", nameservers=world.addresses, topic="made", seconds=60) as sender:
        world.wait("acknowledged messages", lambda: len(sender.acknowledged()) > 100)
        master.kill9()
        gone = world.wait("the dead master's end in the routes", lambda: world.members(0, GROUP).get(0) != old)
        moved = world.wait("a new master in the routes", lambda: world.ids(GROUP) == {0})
        before = len(sender.acknowledged())
        world.wait("messages after it", lambda: len(sender.acknowledged()) > before + 100)
        sender.finish()
        print(f"dead master out of the routes after {gone:.2f} s, new one in after {gone + moved:.2f} s")
        audit = ledger.audit(world.folder / "audit", nameservers=world.addresses, topic="made", ledger=sender.path)
    assert audit["acknowledged"] > 200
    assert audit["missingCount"] == 0


def _brokers(route: TopicRouteData | None) -> set[str]:
    return set() if route is None else {queue.broker_name for queue in route.queue_datas}


def _perms(route: TopicRouteData | None) -> dict[str, int]:
    return {} if route is None else {queue.broker_name: queue.perm for queue in route.queue_datas}
