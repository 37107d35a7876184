"""One broker name, two replicas of ours and one official broker, each master and slave in turn, while the official
producer sends: no acknowledged message is lost, and all three write the same log."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_demo.apache import servers
from rocketmq_demo.apache.ledger import Ledger, audit
from rocketmq_demo.apache.processes import JavaProcess
from rocketmq_demo.calls import call
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.json.bodies import decode_body
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.nameserver import KVTable
from rocketmq_verify.engine.session import Engine
from tests.interop import verifying
from tests.interop.faults import longest_gap
from tests.interop.lab import CLUSTER, FILE_SIZE, JAVA_BROKER, QUIET, GroupView, JavaBroker, Lab
from tests.interop.native import NativeGroup

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600, func_only=True)]

TOPIC = "mixed"
PACE_MS = 5
"""Between two sends of a thread: a starting JVM needs the processor more than the producer does."""


class MixedGroup:
    """Two replicas of ours, an official one, and a producer."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.ours = NativeGroup(
            lab,
            "broker-m",
            replicas=2,
            config={"mappedFileSizeCommitLog": FILE_SIZE, "registerNameServerPeriod": 10_000},
        )
        self.ours.start()
        self.java = JavaBroker(self.ours.folder / "java", self._start_java, lab.ports)
        self.java.process.wait_port(120)
        self.whole()
        self.ledger: Ledger | None = None

    def _start_java(self, folder: Path, port: int) -> JavaProcess:
        return servers.start_broker(
            folder,
            port=port,
            controllers=self.lab.controllers.addresses,
            nameservers=[server.address for server in self.ours.nameservers],
            cluster=CLUSTER,
            name=self.ours.name,
            config={
                "mappedFileSizeCommitLog": FILE_SIZE,
                "allAckInSyncStateSet": True,
                "registerNameServerPeriod": 10_000,
                **QUIET,
            },
            options=JAVA_BROKER,
        )

    def whole(self) -> GroupView:
        """All three in sync."""
        return self.ours.whole(self.java.address)

    def sends(self, count: int) -> None:
        """Wait for `count` more acknowledged sends."""
        assert self.ledger is not None
        self.ours.wait_sends(self.ledger, count)

    def elect(self, address: str) -> None:
        """Elect the replica at `address` by mqadmin, and wait until it is master."""
        view = self.whole()
        broker_id = next(one for one, where in view.addresses.items() if where == address)
        arguments = f"-a {self.lab.controllers.addresses[0]} -bn {self.ours.name} -c {CLUSTER} -b {broker_id}"
        self.ours.mqadmin(f"electMaster {arguments}")
        self.ours.wait(f"{address} as master", lambda view: view.master_id == broker_id)

    def close(self) -> None:
        if self.ledger is not None:
            self.ledger.close()
        self.java.process.close()
        self.ours.close()


@pytest.fixture(scope="module")
def mixed(lab: Lab) -> Iterator[MixedGroup]:
    group = MixedGroup(lab)
    try:
        yield group
    finally:
        group.close()


def test_each_leads_the_others(mixed: MixedGroup, engine: Engine) -> None:
    ours, java = mixed.ours, mixed.java
    ours.make_topics(TOPIC)
    mixed.ledger = Ledger(
        ours.folder / "ledger",
        nameservers=ours.namesrv_addr,
        topic=TOPIC,
        seconds=600,
        timeout_ms=1000,
        threads=2,
        pace_ms=PACE_MS,
    )
    mixed.sends(500)

    # our master dies when the official broker is the only other replica
    before = mixed.whole()
    master = ours.master(before)
    slave = next(one for one in ours.replicas if one is not master)
    slave.process.stop()
    mixed.sends(100)
    master.process.kill9()
    after = ours.elected(before)
    assert after.addresses[after.master_id or 0] == java.address
    mixed.sends(100)
    for replica in (master, slave):
        replica.start()
    before = mixed.whole()
    assert before.addresses[before.master_id or 0] == java.address
    mixed.sends(500)

    # the official master dies
    java.process.kill9()
    ours.master(ours.elected(before))
    mixed.sends(100)
    java.process.close()
    java.start()
    before = mixed.whole()
    ours.master(before)
    mixed.sends(500)

    # all stay alive
    mixed.elect(java.address)
    mixed.sends(100)
    mixed.whole()
    mixed.sends(500)
    mixed.elect(slave.address)
    mixed.sends(100)
    mixed.whole()
    mixed.sends(500)

    mixed.ledger.finish()
    acknowledged = [one for one in mixed.ledger.acknowledged() if one.status == "SEND_OK"]
    print(f"{len(acknowledged)} acknowledged, longest gap {longest_gap(acknowledged):.3f} s")
    found = audit(ours.folder / "audit", nameservers=ours.namesrv_addr, topic=TOPIC, ledger=mixed.ledger.path)
    assert found["complete"]
    assert found["missingCount"] == 0, found
    assert found["duplicateCount"] == 0, found
    compare_logs(mixed)
    stores = {folder.name: folder / "store" for folder in [java.folder, *(one.folder for one in ours.replicas)]}
    verifying.aligned(stores, least=2 * FILE_SIZE, engine=engine)


def compare_logs(mixed: MixedGroup) -> None:
    """Equal byte for byte after the last send; and the epochs."""
    addresses = [mixed.java.address, *(one.address for one in mixed.ours.replicas)]
    mixed.ours.wait("logs of the same size", lambda _: len({size(one) for one in addresses}) == 1)
    end = size(addresses[0])
    folders = [mixed.java.folder, *(one.folder for one in mixed.ours.replicas)]
    logs = [log_of(folder / "store", end) for folder in folders]
    assert end > FILE_SIZE
    assert logs[1] == logs[0]
    assert logs[2] == logs[0]
    epochs = [(folder / "store" / "epochFileCheckpoint").read_text().splitlines()[2:] for folder in folders]
    assert epochs[1:] == epochs[:1] * 2


def size(address: str) -> int:
    """Where a broker's log ends."""
    answer = call(address, request(RequestCode.GET_BROKER_RUNTIME_INFO))
    return int(decode_body(KVTable, answer.body).table["commitLogMaxOffset"])


def log_of(store: Path, end: int) -> bytes:
    """The first `end` bytes of the log."""
    files = sorted((store / "commitlog").iterdir())
    return b"".join(file.read_bytes() for file in files)[:end]
