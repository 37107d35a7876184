"""Three official brokers with our sidecars lose their page caches: the first to come back is not elected; when all are
back, the one that kept most is. Nothing that one of them kept is lost."""

import re
import time
from collections.abc import Iterator

import pytest

from rocketmq_commitlog.state import LogPaths, read_state
from rocketmq_demo.calls import call
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.send import SendMessageRequestHeader
from rocketmq_formats.store.message import Record, read_record
from rocketmq_sidecar.evidence.boot_file import FILE_NAME as BOOT_NOTE
from tests.gate.patience import patient
from tests.interop.lab import Group, JavaBroker, Lab
from tests.interop.sidecars import Sidecar
from tests.processes.kit import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600, func_only=True)]

PATIENCE = 120.0
SENT = 60


@pytest.fixture
def group(lab: Lab) -> Iterator[Group]:
    group = Group(lab, "broker-doubt")
    try:
        group.form()
        yield group
    finally:
        group.close()


def send(broker: JavaBroker, body: bytes) -> None:
    header = SendMessageRequestHeader(
        producer_group="test",
        topic="doubt",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties="",
    )
    answer = call(broker.address, request(RequestCode.SEND_MESSAGE, header, body))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def records(broker: JavaBroker) -> dict[int, bytes]:
    """Offset and body of each in its log, which fits into one file."""
    data = (broker.folder / "store" / "commitlog" / f"{0:020}").read_bytes()
    end = read_state(LogPaths.of(broker.folder / "store")).max_offset
    found, position = {}, 0
    while position < end:
        record = read_record(data, position, len(data), check_crc=True)
        assert isinstance(record, Record)
        found[position] = bytes(record.body(data))
        position += record.size
    return found


def lose_power(broker: JavaBroker, count: int) -> None:
    """The last `count` records had not reached the disk, and the machine has started again."""
    start = list(records(broker))[-count]
    with (broker.folder / "store" / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(start)
        file.write(bytes(2 * 1024 * 1024 - start))
    (broker.folder / "store" / BOOT_NOTE).write_text("running another-boot\n")


def proven(sidecar: Sidecar) -> bool:
    return re.search(r"log_unproven{.*} 0.0", sidecar.get("/metrics")[1]) is not None


def test_the_longest_log_is_elected_when_all_have_come_back(lab: Lab, group: Group) -> None:
    sidecars = {broker.identity.broker_id: Sidecar(lab, group, broker) for broker in group.brokers}
    try:
        for sidecar in sidecars.values():
            sidecar.wait_ready()
        before = group.whole()
        master = group.broker(before.master_id)
        bodies = [b"%d" % number for number in range(SENT)]
        for body in bodies:
            send(master, body)
        for sidecar in sidecars.values():
            sidecar.process.kill9()
            sidecar.process.close()
        first = master
        second, kept = (broker for broker in group.brokers if broker is not master)
        master.process.suspend()  # so that it requests no smaller set, and no election takes place in between
        for broker in (second, kept, first):
            broker.process.kill9()
            broker.process.close()
        view = group.wait("nobody alive", lambda view: not view.alive, PATIENCE)
        assert (view.master_epoch, view.in_sync) == (before.master_epoch, before.in_sync)
        for broker, count in ((first, 20), (second, 10), (kept, 3)):
            lose_power(broker, count)
        for broker in (first, second):
            broker.start()
            sidecars[broker.identity.broker_id].start()
        group.wait("two alive", lambda view: len(view.alive) == 2, PATIENCE)
        sidecar = sidecars[first.identity.broker_id]
        sidecar.wait("a doubt", lambda view: "lost power or was reset" in view.ready_reason)
        assert "rocketmq_sidecar_log_unproven{" in sidecar.get("/metrics")[1]
        wait_until(
            lambda: any("no replica is elected" in one.output() for one in lab.controllers),
            "nobody to be elected",
            patient(PATIENCE),
        )
        view = group.view
        assert (view.master_epoch, view.in_sync) == (before.master_epoch, before.in_sync)
        kept.start()
        sidecars[kept.identity.broker_id].start()
        elected = group.wait("a master", lambda view: view.master_epoch > before.master_epoch, PATIENCE)
        assert elected.master_id == kept.identity.broker_id
        group.wait("all in sync", lambda view: view.in_sync == {1, 2, 3}, PATIENCE)
        for sidecar in sidecars.values():
            wait_until(lambda sidecar=sidecar: proven(sidecar), "proof", patient(PATIENCE))
            sidecar.wait_ready()
        assert list(records(kept).values()) == bodies[: SENT - 3]
    finally:
        for sidecar in sidecars.values():
            sidecar.process.close()
