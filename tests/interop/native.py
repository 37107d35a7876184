"""A group of ours (replicas and name servers) under the lab's controllers, for official clients to work with."""

import time
from collections.abc import Callable

from rocketmq_demo.apache.ledger import Ledger
from rocketmq_demo.calls import call
from rocketmq_demo.ports import HOST
from rocketmq_demo.replica import Config, NameServer, Replica
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body
from rocketmq_formats.remoting.broker_admin import TopicRequestHeader
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.nameserver import BrokerData, ClusterInfo
from tests.gate.patience import patient
from tests.interop.lab import CLUSTER, GroupView, Lab
from tests.topic_requests import topic_request

_POLL = 0.05
_SETTLE = patient(120.0)


def registered(nameserver: str, name: str) -> dict[int, str]:
    """A name server's addresses of a broker name, by the ids in routes."""
    answer = call(nameserver, request(RequestCode.GET_BROKER_CLUSTER_INFO))
    table = decode_body(ClusterInfo, answer.body).broker_addr_table
    return dict(table.get(name, BrokerData(broker_name=name)).broker_addrs)


class NativeGroup:
    """Two name servers and the replicas of one broker name."""

    def __init__(
        self, lab: Lab, name: str, *, replicas: int = 3, config: Config | None = None, host: str = HOST
    ) -> None:
        """`host`: a loopback address; the controllers stay where they are."""
        self.lab = lab
        self.name = name
        self.folder = lab.folder / name
        self.nameservers = [
            NameServer(self.folder / f"namesrv-{number}", port=lab.ports.single(), host=host) for number in range(2)
        ]
        self.namesrv_addr = ";".join(server.address for server in self.nameservers)
        self.replicas = [
            Replica(
                f"{name}-{number}",
                folder=self.folder / f"replica-{number}",
                ports=lab.ports,
                controllers=lab.controllers.addresses,
                nameservers=[server.address for server in self.nameservers],
                cluster=CLUSTER,
                name=name,
                config=config,
                host=host,
            )
            for number in range(replicas)
        ]

    def start(self) -> GroupView:
        """Start all, and wait until every replica is in sync."""
        for replica in self.replicas:
            replica.launch()
        for server in self.nameservers:
            server.wait_listening(_SETTLE)
        for replica in self.replicas:
            replica.wait_listening(_SETTLE)
        return self.whole()

    def whole(self, *others: str) -> GroupView:
        """The first state in which all replicas, and brokers at the addresses `others`, are in sync."""
        wanted = {one.address for one in self.replicas} | set(others)
        return self.wait(f"{sorted(wanted)} in sync", lambda view: self.in_sync(view) >= wanted)

    def in_sync(self, view: GroupView) -> set[str]:
        """Addresses of the SyncStateSet's members."""
        return {view.addresses[one] for one in view.in_sync}

    def master(self, view: GroupView) -> Replica:
        """Our replica that is master; LookupError without one."""
        for replica in self.replicas:
            if view.master_id is not None and replica.address == view.addresses[view.master_id]:
                return replica
        raise LookupError(f"none of ours is master: {view}")

    def elected(self, before: GroupView) -> GroupView:
        """The first state with a master of a later epoch."""
        return self.wait(
            f"a master after epoch {before.master_epoch}",
            lambda view: view.master_epoch > before.master_epoch and view.master_id is not None,
        )

    def wait(self, what: str, condition: Callable[[GroupView], bool]) -> GroupView:
        """The first state that fulfils `condition`."""
        deadline = time.monotonic() + _SETTLE
        while True:
            view = self.lab.view(self.name)
            if view is not None and condition(view):
                return view
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {_SETTLE:g} s for {what}; now {view}")
            time.sleep(_POLL)

    def wait_named(self, address: str) -> None:
        """Wait until every name server has `address` as the master: before that official producers find no route, and
        fail at once."""
        deadline = time.monotonic() + _SETTLE
        while any(registered(server.address, self.name).get(0) != address for server in self.nameservers):
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {_SETTLE:g} s for {address} to be registered as master of {self.name}")
            time.sleep(_POLL)

    def mqadmin(self, *commands: str) -> list[str]:
        """The official tool's output for each command, with this group's name servers."""
        found = []
        for command in commands:
            printed, complaint = self.lab.tools.run([*command.split(), "-n", self.namesrv_addr])
            assert "Exception" not in complaint, (command, complaint)
            assert not printed.startswith("usage:"), (command, complaint)
            found.append(printed)
        return found

    def make_topics(self, *names: str, queues: int = 4) -> None:
        """Create topics as mqadmin updateTopic does, and wait until every replica has them."""
        master = self.master(self.whole())
        for name in names:
            answer = call(master.address, topic_request(name, queues))
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        self.copied(*names)

    def copied(self, *names: str) -> None:
        """Wait until every replica has these topics."""
        for name in names:
            question = TopicRequestHeader(topic=name)
            self.wait(f"{name} on all replicas", lambda _, question=question: self._known(question))

    def _known(self, question: TopicRequestHeader) -> bool:
        answers = [call(one.address, request(RequestCode.GET_TOPIC_CONFIG, question)) for one in self.replicas]
        return all(answer.code == ResponseCode.SUCCESS for answer in answers)

    def wait_sends(self, ledger: Ledger, count: int) -> None:
        """Wait for `count` more acknowledged sends."""
        wanted = ledger.count + count
        self.wait(f"{count} more sends", lambda _: ledger.count >= wanted)

    def close(self) -> None:
        """End everything."""
        for replica in self.replicas:
            replica.close()
        for server in self.nameservers:
            server.close()
