"""Our sidecar beside official brokers (brokerEngine=apache): it observes, fences, and hands over while an official
producer sends, without losing acknowledged messages. Works on the group that test_faults has left, and ends it.
"""

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from rocketmq_api.channels import RefusedError
from rocketmq_api.replica_view import ReplicaRole
from rocketmq_demo.calls import call
from rocketmq_demo.ports import HOST
from rocketmq_formats import properties
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.controller import EpochEntryCache
from rocketmq_formats.remoting.ha_info import ExchangeHAInfoHeader
from rocketmq_formats.remoting.send import SendMessageRequestHeader
from rocketmq_sidecar.domain.observing.fence import FOREVER_MS
from rocketmq_sidecar.observer.master_link import AT_ONCE, HOUSEKEEPING
from rocketmq_verify.engine.session import Engine
from tests.interop import verifying
from tests.interop.conftest import LOADS
from tests.interop.faults import Load
from tests.interop.lab import FILE_SIZE, Group, GroupView, JavaBroker, Lab
from tests.interop.sidecars import Sidecar
from tests.interop.verifying import Store

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600, func_only=True)]

TOPIC = "observed"
HAND_OVER_LIMIT = 40.0
"""Seconds without acknowledged sends; it takes about one. As in test_faults, far above what a working hand-over
needs."""
PATIENCE = 60.0
RECONNECTED = 180.0
"""For a slave to be back: a second try comes 20 s after the first one, a third 40 s after that."""
NOTICED = "slave does not follow its master"
"""The sidecar's line before it makes its slave connect again."""
FENCED, OPEN = (FOREVER_MS, 4), (0, 6)
"""`configuration` of a broker."""


@pytest.fixture(scope="module")
def group(official: Group) -> Iterator[Group]:
    """All in sync again; it is not used after this module."""
    official.whole()
    yield official
    official.close()


@pytest.fixture(scope="module")
def sidecars(lab: Lab, group: Group) -> Iterator[dict[int, Sidecar]]:
    """One beside each, by brokerId."""
    started = {broker.identity.broker_id: Sidecar(lab, group, broker) for broker in group.brokers}
    try:
        for sidecar in started.values():
            sidecar.wait_ready()
        yield started
    finally:
        for sidecar in started.values():
            sidecar.process.close()


@pytest.fixture(scope="module")
def load(engine: Engine, lab: Lab, group: Group, pytestconfig: pytest.Config) -> Iterator[Load]:
    del engine  # started before the machine is busy
    sender = Load(lab, TOPIC, seconds=3600)
    pytestconfig.stash[LOADS].append(sender)
    try:
        yield sender
    finally:
        sender.close()


def send(broker: JavaBroker) -> RemotingCommand:
    header = SendMessageRequestHeader(
        producer_group="test",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties="",
    )
    return call(broker.address, request(RequestCode.SEND_MESSAGE, header, b"x"))


def settings_of(broker: JavaBroker) -> Mapping[str, str]:
    return properties.parse(call(broker.address, request(RequestCode.GET_BROKER_CONFIG)).body)


def configuration(broker: JavaBroker) -> tuple[int, int]:
    """Until when sends are refused, and the permission that routes carry."""
    values = settings_of(broker)
    return int(values["startAcceptSendRequestTimeStamp"]), int(values["brokerPermission"])


def wait_configuration(group: Group, broker: JavaBroker, wanted: tuple[int, int]) -> None:
    """Wait until the broker obeys the fence; on a busy machine the first call may have been too early."""

    def reached(_: GroupView) -> bool:
        with contextlib.suppress(OSError):
            return configuration(broker) == wanted
        return False

    group.wait(f"configuration {wanted}", reached, PATIENCE)


def elected(group: Group, before: GroupView) -> GroupView:
    return group.wait("another master", lambda view: view.master_epoch > before.master_epoch, PATIENCE)


def end_all(group: Group) -> None:
    """All three in order, at once."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda broker: broker.process.stop(), group.brokers))


def master_of(sidecars: dict[int, Sidecar], view: GroupView) -> Sidecar:
    assert view.master_id is not None
    return sidecars[view.master_id]


def test_each_sees_its_broker(group: Group, sidecars: dict[int, Sidecar]) -> None:
    view = group.whole()
    answer = call(master_of(sidecars, view).broker.address, request(RequestCode.GET_BROKER_EPOCH_CACHE))
    written = decode_body(EpochEntryCache, answer.body)
    for broker_id, sidecar in sidecars.items():
        role = "master" if broker_id == view.master_id else "slave"
        seen = sidecar.wait(
            f"{role} {broker_id}", lambda one, role=role: one.role == role and set(one.sync_state_set) == {1, 2, 3}
        )
        assert (seen.engine, seen.broker_id, seen.ready_reason) == ("apache", broker_id, "")
        assert (seen.master_broker_id, seen.master_epoch) == (view.master_id, view.master_epoch)
        assert seen.address == sidecar.broker.address
        assert [(one.epoch, one.start_offset) for one in seen.epochs] == [
            (one.epoch, one.start_offset) for one in written.epoch_list
        ]
        assert seen.epochs[-1].end_offset == seen.max_offset
        assert sidecar.get("/healthz")[0] == 200
        assert re.search(
            rf'rocketmq_sidecar_role{{.*broker_id="{broker_id}".*role="{role}"}} 1.0', sidecar.get("/metrics")[1]
        )


def test_fence(group: Group, sidecars: dict[int, Sidecar]) -> None:
    sidecar = master_of(sidecars, group.whole())
    assert send(sidecar.broker).code == ResponseCode.SUCCESS
    try:
        seen = sidecar.set_fenced(True, "a disk is being changed")
        assert (seen.fenced, seen.fence_reason) == (True, "a disk is being changed")
        wait_configuration(group, sidecar.broker, FENCED)
        refused = send(sidecar.broker)
        assert (refused.code, "broker unable to service" in (refused.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        assert sidecar.view.role is ReplicaRole.MASTER
        with pytest.raises(RefusedError, match="fenced"):
            sidecar.call(lambda client: client.hand_over())
    finally:
        assert not sidecar.set_fenced(False).fenced
    wait_configuration(group, sidecar.broker, OPEN)
    assert send(sidecar.broker).code == ResponseCode.SUCCESS


def test_hand_over(group: Group, sidecars: dict[int, Sidecar], load: Load) -> None:
    before = group.whole()
    sidecar = master_of(sidecars, before)
    target = min(sidecars.keys() - {before.master_id})
    with load.measure("hand-over through the sidecar", "nobody dies") as fault:
        new = sidecar.call(lambda client: client.hand_over(target, seconds=30))
        fault.decided_after = round(time.monotonic() - fault.began, 3)
    assert fault.longest_gap < HAND_OVER_LIMIT
    assert (new.master_broker_id, new.master_epoch) == (target, before.master_epoch + 1)
    after = group.whole()
    assert (after.master_id, after.master_epoch) == (target, new.master_epoch)
    assert send(sidecars[target].broker).code == ResponseCode.SUCCESS
    with pytest.raises(RefusedError, match=r"not master|not name this replica master"):
        sidecar.call(lambda client: client.hand_over())


class Stray:
    """A slave that is connected to another slave's HA port (found in Linux' table of connections).

    Its own registration at the name server, or the sidecar, may set the right address before the slave connects, and
    Java may drop a new connection and use the right address for the next one. So it is sent there again until it stays.
    """

    def __init__(self, slave: JavaBroker, other: JavaBroker, usual: str) -> None:
        self._slave, self._usual = slave, usual
        port = int(settings_of(other)["haListenPort"])
        self._wrong = ExchangeHAInfoHeader(
            master_ha_address=f"{HOST}:{port}", master_address=other.address, master_flush_offset=0
        )
        self._established = re.compile(rf" 0100007F:{port:04X} 01 ")

    def is_there(self) -> bool:
        return self._established.search(Path("/proc/net/tcp").read_text()) is not None

    def keep(self) -> None:
        """Send it there if it is not: its connection ends, and its next one goes to the wrong address."""
        if self.is_there():
            return
        self._housekeeping(AT_ONCE)
        deadline = time.monotonic() + PATIENCE
        while not self.is_there() and time.monotonic() < deadline:
            self._tell(request(RequestCode.EXCHANGE_BROKER_HA_INFO, self._wrong))
            time.sleep(0.05)
        self._housekeeping(self._usual)

    def _housekeeping(self, interval: str) -> None:
        self._tell(request(RequestCode.UPDATE_BROKER_CONFIG, body=properties.dump({HOUSEKEEPING: interval})))

    def _tell(self, command: RemotingCommand) -> None:
        assert call(self._slave.address, command, timeout=PATIENCE).code == ResponseCode.SUCCESS


def test_a_slave_that_follows_another_slave_connects_again(
    group: Group, sidecars: dict[int, Sidecar], load: Load
) -> None:
    """Java's race after an election (`rocketmq_sidecar.domain.observing.link`), made by hand."""
    view = group.whole()
    load.wait_acknowledged()  # the master's epoch is not empty
    slave_id, other_id = sorted({1, 2, 3} - {view.master_id})
    slave, other = sidecars[slave_id].broker, sidecars[other_id].broker
    usual = settings_of(slave)[HOUSEKEEPING]
    stray = Stray(slave, other, usual)

    def noticed(_: GroupView) -> bool:
        if NOTICED in sidecars[slave_id].process.output():
            return True
        stray.keep()
        return False

    group.wait("the sidecar to notice", noticed, RECONNECTED)
    group.wait("three replicas in sync", lambda view: view.in_sync == {1, 2, 3}, RECONNECTED)
    group.wait("the key as it was", lambda _: settings_of(slave)[HOUSEKEEPING] == usual, RECONNECTED)


def test_sidecar_and_broker_stop_and_come_back(group: Group, sidecars: dict[int, Sidecar], load: Load) -> None:
    """Like a replaced pod: the sidecar's SIGTERM hands over, then the broker ends; id and fence are kept."""
    before = group.whole()
    sidecar = master_of(sidecars, before)
    broker, broker_id = sidecar.broker, before.master_id
    with load.measure("SIGTERM of the master's sidecar, then of its broker") as fault:
        assert sidecar.process.stop() == 0
        handed_over = "mastership handed over" in sidecar.process.output()
        if handed_over:
            after = elected(group, before)
        broker.process.stop()
        if not handed_over:  # it has four seconds for it, which a busy machine may need for other things
            after = elected(group, before)
        fault.decided_after = round(time.monotonic() - fault.began, 3)
    assert fault.longest_gap < HAND_OVER_LIMIT
    assert after.master_id != broker_id
    assert handed_over or "no candidate caught up in time" in sidecar.process.output()

    sidecar.start()  # before its broker, which nothing answers for
    group.wait("the sidecar beside nobody", lambda _: "gRPC open" in sidecar.process.output(), PATIENCE)
    seen = sidecar.set_fenced(True, "until it is looked at")
    assert (seen.role, seen.broker_id, seen.fenced) == (ReplicaRole.UNKNOWN, broker_id, True)
    sidecar.process.stop()
    group.restart(broker)
    assert broker.identity.broker_id == broker_id
    sidecar.start()
    sidecar.wait_ready()
    wait_configuration(group, broker, FENCED)
    sidecar.set_fenced(False)
    wait_configuration(group, broker, OPEN)
    now = group.whole()
    assert (now.master_id, now.master_epoch) == (after.master_id, after.master_epoch)
    assert set(now.addresses) == {1, 2, 3}


def test_logs_agree_while_they_are_written(
    group: Group, sidecars: dict[int, Sidecar], load: Load, engine: Engine
) -> None:
    """One replica by its files, the others by their sidecars."""
    group.whole()
    load.wait_written(FILE_SIZE)
    before = len(load.acknowledged)
    observed = {one.broker.folder.name: one.grpc for one in sidecars.values()}
    name, store = next(iter(group.stores.items()))
    del observed[name]
    verifying.aligned({name: store}, observed, least=FILE_SIZE, engine=engine)
    assert len(load.acknowledged) > before


def test_nothing_acknowledged_is_lost(load: Load) -> None:
    audit = load.finish()
    assert audit["complete"], audit["queues"]
    assert audit["acknowledged"] == len(load.acknowledged) > 0
    assert audit["missingCount"] == 0, audit["missing"]


def test_logs_agree_when_they_are_written_no_more(group: Group) -> None:
    end_all(group)
    verdict = verifying.aligned(group.stores, least=FILE_SIZE, still=True)
    assert verdict.structure is not None
    assert verdict.structure.faults == 0
    assert verdict.queues is not None
    assert verdict.queues.units >= 3 * verdict.structure.records
    assert verdict.queues.lag == 0
    assert verdict.queues.index_entries > verdict.structure.records  # an index file of each replica
    assert verdict.queues.index_faults == 0


def test_one_byte_is_named(group: Group, tmp_path: Path, engine: Engine) -> None:
    name, *_ = stores = group.stores
    copy = Store.copy(stores[name], tmp_path / "copy")
    stores[name] = copy.root
    message = copy.messages(TOPIC)[-20]
    at = message.physical_offset + message.body_start - message.position + 7
    copy.flip(at)
    code, verdict = verifying.verify(stores, engine=engine)
    assert code == 1
    verifying.assert_damaged(verdict, message, where=name, difference=at, epoch=copy.epoch_at(at))


def test_an_entry_of_an_index_is_named(group: Group, tmp_path: Path, engine: Engine) -> None:
    name, *_ = stores = group.stores
    copy = Store.copy(stores[name], tmp_path / "copy")
    stores[name] = copy.root
    file = max((copy.root / "index").iterdir())
    data = bytearray(file.read_bytes())
    number = int.from_bytes(data[36:40]) // 2
    data[40 + 50_000 * 4 + number * 20 + 2] ^= 1  # of the key's hash
    file.write_bytes(data)
    code, verdict = verifying.verify(stores, engine=engine)
    assert code == 0
    (finding,) = verdict.findings
    assert (finding.kind, finding.replicas) == ("indexMismatch", (name,))
    assert f"index file {file.name}: entry {number}: " in finding.detail


def test_old_epochs_and_a_queue_are_verified(group: Group, tmp_path: Path, engine: Engine) -> None:
    """A message of the first master; of another replica, where a queue says that its message is."""
    _, name, other = stores = group.stores
    old, queue = (Store.copy(stores[one], tmp_path / one) for one in (name, other))
    stores |= {name: old.root, other: queue.root}
    end = old.epochs.entries[1].start_offset
    message = [*old.messages("ledger", below=end), *old.messages(TOPIC, below=end)][-1]
    at = message.physical_offset + message.body_start - message.position
    old.flip(at)
    units = queue.messages(TOPIC)
    queue.flip_unit(units[len(units) // 2])
    code, verdict = verifying.verify(stores, engine=engine)
    assert code == 1
    damaged = [one for one in verdict.findings if one.kind == "corruptRecord"]
    verifying.assert_damaged(
        msgspec.structs.replace(verdict, findings=tuple(damaged)),
        message,
        where=name,
        difference=at,
        epoch=old.epoch_at(at),
    )
    (finding,) = (one for one in verdict.findings if one not in damaged)
    assert (finding.kind, finding.replicas) == ("queueMismatch", (other,))
    verifying.assert_names(finding.record, units[len(units) // 2])
