"""A native group under Java's controllers 5.3.3: it forms, loses its master and takes it back. What only ours
know (`strictDurability`, `renewEpoch`) is ignored or refused there."""

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_demo.apache.processes import QUICK_START, SMALL_HEAP, JavaProcess
from rocketmq_demo.calls import call
from rocketmq_demo.ports import HOST
from rocketmq_demo.replica import Replica
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.client import GetMaxOffsetRequestHeader, OffsetResponseHeader
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.headers import decode_header
from tests.broker.broker_kit import send_request
from tests.gate.patience import patient
from tests.interop.asking import wait
from tests.interop.lab import Lab
from tests.interop.native import NativeGroup
from tests.lab.controller import start_controller

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

TOPIC = "under-java"
CONTROLLERS = "java-controllers"
EACH = 20
"""Messages in each third of the story."""


class JavaControllers:
    """One controller that leads by itself."""

    def __init__(self, folder: Path, port: int) -> None:
        self.addresses = [f"{HOST}:{port}"]
        self.process: JavaProcess = start_controller(
            folder, member="n0", peers={"n0": port}, group=CONTROLLERS, options=[*SMALL_HEAP, *QUICK_START]
        )

    def __iter__(self) -> Iterator["JavaControllers"]:
        yield self

    @property
    def alive(self) -> bool:
        return self.process.alive

    @property
    def address(self) -> str:
        return self.addresses[0]

    def close(self) -> None:
        self.process.close()


@pytest.fixture
def group(apache: None, tmp_path: Path) -> Iterator[NativeGroup]:
    """Three strict replicas in sync."""
    lab = Lab(tmp_path)
    controllers = JavaControllers(tmp_path / "controller", lab.ports.single())
    lab.controllers = controllers  # type: ignore[assignment]  # of it, a group needs what is here
    native = NativeGroup(lab, "broker-j")
    try:
        controllers.process.wait_port(patient(120.0))
        native.start()
        yield native
    finally:
        native.close()
        lab.close()


def send(master: Replica, first: int) -> None:
    """`EACH` messages, each tried until it is acknowledged by the whole set."""
    for number in range(first, first + EACH):
        wait(f"message {number} acknowledged", functools.partial(acknowledged, master, number))


def acknowledged(master: Replica, number: int) -> bool:
    return answered(master, send_request(b"%d" % number, topic=TOPIC)).code == ResponseCode.SUCCESS


def answered(replica: Replica, asked: RemotingCommand) -> RemotingCommand:
    return call(replica.address, asked, timeout=patient(5.0))


def end(replica: Replica) -> int:
    """The end of the queue there."""
    asked = request(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic=TOPIC, queue_id=0))
    answer = answered(replica, asked)
    return decode_header(OffsetResponseHeader, answer.ext_fields or {}).offset if answer.code == 0 else -1


def test_a_native_group_loses_its_master_and_takes_it_back(group: NativeGroup) -> None:
    before = group.whole()
    group.make_topics(TOPIC, queues=1)
    first = group.master(before)
    send(first, 0)
    first.process.kill9()
    after = group.elected(before)
    assert after.master_id != before.master_id
    second = group.master(after)
    send(second, EACH)
    first.start()
    back = group.whole()
    assert back.master_id == after.master_id
    assert back.addresses.keys() == {1, 2, 3}, "it came back as the member that it was"
    send(second, 2 * EACH)
    wait("all of it on every replica", lambda: {end(replica) for replica in group.replicas} == {3 * EACH})
    kept = {(replica.folder / "store" / ".controllers.meta").read_text() for replica in group.replicas}
    assert kept == {CONTROLLERS}
