"""A replica of ours takes over an official broker's folder, with topics, messages, offsets and delayed messages, and
gives it back."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocketmq_demo.apache import servers
from rocketmq_demo.apache.processes import JavaProcess
from rocketmq_demo.ports import HOST
from tests.interop.lab import CLUSTER, JAVA_BROKER, Lab
from tests.interop.native import NativeGroup
from tests.lab import clients
from tests.lab.clients import PushConsumer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600, func_only=True)]

TOPIC, GROUP = "moves", "movers"
COUNT = 30
SIZES = {"mappedFileSizeCommitLog": 16 * 1024, "mappedFileSizeConsumeQueue": 20 * 30}


def test_there_and_back(lab: Lab) -> None:
    ours = NativeGroup(lab, "broker-s", replicas=1, config={**SIZES, "durability": "relaxed"})
    replica, namesrv = ours.replicas[0], ours.namesrv_addr
    expected: list[str] = []

    @contextmanager
    def java_broker() -> Iterator[JavaProcess]:
        port = lab.ports.broker()
        with servers.start_broker(
            replica.folder,  # whose store is in the same place
            port=port,
            controllers=[],
            nameservers=[server.address for server in ours.nameservers],
            cluster=CLUSTER,
            name=ours.name,
            config={**SIZES, "enableControllerMode": False},
            options=JAVA_BROKER,
        ) as java:
            java.wait_port(120)
            ours.wait_named(f"{HOST}:{port}")
            yield java

    def use(label: str) -> None:
        """Send and receive; the group continues where it was."""
        folder, ways = ours.folder / label, ("sync", "batch", "delayed")
        clients.send(folder / "sender", nameservers=namesrv, topic=TOPIC, ways=ways, count=COUNT, prefix=f"{label} ")
        bodies = [f"{label} {way} {number}" for way in ways for number in range(COUNT)]
        expected.extend(bodies)
        read(folder / "reader", GROUP, bodies)

    def read(folder: Path, group: str, bodies: list[str]) -> None:
        with PushConsumer(folder, nameservers=namesrv, group=group, topic=TOPIC) as consumer:
            consumer.wait_until(f"{len(bodies)} messages", lambda: sorted(consumer.bodies) == sorted(bodies))
            consumer.finish()

    try:
        for server in ours.nameservers:
            server.wait_listening()
        with java_broker() as java:
            use("theirs")
            java.stop()

        replica.start()
        ours.wait_named(replica.address)
        use("ours")
        read(ours.folder / "all-from-ours", "readers", expected)
        replica.process.stop()

        with java_broker():
            use("theirs-again")
            read(ours.folder / "all-from-theirs", "others", expected)
    finally:
        ours.close()
