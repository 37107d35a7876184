"""Official brokers under our controllers, broken in every way while an official producer keeps sending.

Each test begins with three replicas in sync. Controllers come last: a Java broker looks for their leader only every
10 s, and a report about its SyncStateSet to the former leader is lost, with any controllers; if a slave dies in these
10 s, its master waits 15 s for it.

How long nothing was acknowledged is measured and reported (terminal, build/interop/gaps.json); the limits asserted here
are far above what a working failover needs.
"""

import time
from collections.abc import Iterator

import pytest

from rocketmq_verify.engine.session import Engine
from tests.interop import faults, verifying
from tests.interop.conftest import LOADS
from tests.interop.faults import Fault, Load
from tests.interop.lab import FILE_SIZE, Group, GroupView, Lab

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900, func_only=True)]

FAILOVER_LIMIT = 60.0
"""Seconds; a failover takes about one, of a hung master about four."""
SHRINK_LIMIT = 90.0
"""Seconds; a Java master continues without a slave that hangs after 20 s, when it ends the silent connection."""
UNDISTURBED_LIMIT = 30.0
"""Seconds; brokers serve without controllers, so only the machine can make a pause."""
PATIENCE = 120.0
"""Seconds after which a required event counts as missing."""
HANG = 8.0
"""Seconds that controllers hang: longer than their lease, and than the silence after which a broker is suspected."""


@pytest.fixture(scope="module")
def group(official: Group) -> Group:
    return official


@pytest.fixture(scope="module")
def load(engine: Engine, lab: Lab, group: Group, pytestconfig: pytest.Config) -> Iterator[Load]:
    del engine  # started before the machine is busy
    sender = Load(lab, "ledger", seconds=3600)
    pytestconfig.stash[LOADS].append(sender)
    try:
        yield sender
    finally:
        sender.close()


@pytest.fixture(autouse=True)
def report(load: Load, group: Group, pytestconfig: pytest.Config) -> Iterator[None]:
    yield
    path = pytestconfig.rootpath / "build" / "interop" / "gaps.json"
    faults.write_report(path, load, restartedSlaves=group.restarted_slaves)


def same_master(before: GroupView, after: GroupView) -> bool:
    return (after.master_id, after.master_epoch) == (before.master_id, before.master_epoch)


def keeps_going(before: GroupView, after: GroupView) -> None:
    """There was no election, and ids and epochs stayed."""
    assert same_master(before, after), f"{before} became {after}"
    assert after.sync_state_set_epoch >= before.sync_state_set_epoch


def came_back(group: Group, before: GroupView) -> None:
    """The broker on another port is the member it was."""
    after = group.whole()
    assert set(after.addresses) == {1, 2, 3}
    assert {broker.identity.broker_id: broker.address for broker in group.brokers} == after.addresses
    assert sum(before.addresses[number] != after.addresses[number] for number in after.addresses) >= 1


def elected(group: Group, before: GroupView, fault: Fault) -> GroupView:
    """Wait for another master; it must be one that has every acknowledged message."""
    after = group.wait("another master", lambda view: view.master_epoch > before.master_epoch, PATIENCE)
    fault.decided_after = round(time.monotonic() - fault.began, 3)
    assert after.master_id in before.in_sync - {before.master_id}
    assert after.sync_state_set_epoch > before.sync_state_set_epoch
    return after


def test_slave_killed(group: Group, load: Load) -> None:
    before = group.whole()
    slave = max(before.in_sync - {before.master_id})
    broker = group.broker(slave)
    with load.measure("slave: kill -9") as fault:
        broker.process.kill9()
        after = group.wait("a set without the slave", lambda view: slave not in view.in_sync, PATIENCE)
    assert fault.longest_gap < FAILOVER_LIMIT
    keeps_going(before, after)
    group.restart(broker)
    assert broker.identity.broker_id == slave
    came_back(group, before)
    keeps_going(before, group.view)


def test_slave_hung(group: Group, load: Load) -> None:
    before = group.whole()
    slave = max(before.in_sync - {before.master_id})
    broker = group.broker(slave)
    with load.measure("slave: SIGSTOP", "the Java master's haHousekeepingInterval") as fault:
        broker.process.suspend()
        try:
            after = group.wait("a set without the slave", lambda view: slave not in view.in_sync, PATIENCE)
        finally:
            broker.process.resume()
    assert fault.longest_gap < SHRINK_LIMIT
    keeps_going(before, after)
    keeps_going(before, group.whole())


def test_master_hung(group: Group, load: Load) -> None:
    before = group.whole()
    broker = group.broker(before.master_id)
    with load.measure("master: SIGSTOP", f"with a send timeout of {faults.TIMEOUT_MS} ms") as fault:
        broker.process.suspend()
        try:
            after = elected(group, before, fault)
            load.wait_acknowledged()
        finally:
            broker.process.resume()
    assert fault.longest_gap < FAILOVER_LIMIT
    assert broker.identity.broker_id == before.master_id
    assert same_master(after, group.whole()), "the old master came back and took over"


def test_master_killed(group: Group, load: Load) -> None:
    before = group.whole()
    broker = group.broker(before.master_id)
    with load.measure("master: kill -9") as fault:
        broker.process.kill9()
        after = elected(group, before, fault)
    assert fault.longest_gap < FAILOVER_LIMIT
    group.restart(broker)
    assert broker.identity.broker_id == before.master_id
    came_back(group, before)
    assert same_master(after, group.view)


def test_controller_leader_hung(lab: Lab, group: Group, load: Load) -> None:
    before = group.whole()
    leader = lab.controllers.wait_leader(PATIENCE)
    with load.measure("controller leader: SIGSTOP") as fault:
        lab.controllers[leader].suspend()
        try:
            successor = lab.controllers.wait_leader(PATIENCE)
            after = group.wait("all alive under the new leader", lambda view: view.alive == {1, 2, 3}, PATIENCE)
        finally:
            lab.controllers[leader].resume()
    assert fault.longest_gap < UNDISTURBED_LIMIT
    assert successor != leader
    keeps_going(before, after)
    lab.controllers[leader].wait_ready(PATIENCE)
    keeps_going(before, group.whole())


def test_controller_leader_killed(lab: Lab, group: Group, load: Load) -> None:
    before = group.whole()
    leader = lab.controllers.wait_leader(PATIENCE)
    with load.measure("controller leader: kill -9") as fault:
        lab.controllers[leader].kill9()
        successor = lab.controllers.wait_leader(PATIENCE)
        after = group.wait("all alive under the new leader", lambda view: view.alive == {1, 2, 3}, PATIENCE)
    assert fault.longest_gap < UNDISTURBED_LIMIT
    assert successor != leader
    keeps_going(before, after)
    lab.controllers.start_member(leader).wait_ready(PATIENCE)
    keeps_going(before, group.whole())


def test_all_controllers_hung(lab: Lab, group: Group, load: Load) -> None:
    before = group.whole()
    with load.measure(f"all controllers: SIGSTOP for {HANG:g} s") as fault:
        for controller in lab.controllers:
            controller.suspend()
        try:
            time.sleep(HANG)
        finally:
            for controller in lab.controllers:
                controller.resume()
        lab.controllers.wait_ready(PATIENCE)
        after = group.wait("all alive again", lambda view: view.alive == {1, 2, 3}, PATIENCE)
    assert fault.longest_gap < UNDISTURBED_LIMIT
    keeps_going(before, after)
    keeps_going(before, group.whole())


def test_all_controllers_killed(lab: Lab, group: Group, load: Load) -> None:
    before = group.whole()
    with load.measure("all controllers: kill -9, started again") as fault:
        for controller in lab.controllers:
            controller.kill9()
        load.wait_acknowledged()
        lab.controllers.start()
        lab.controllers.wait_ready(PATIENCE)
        after = group.wait("all alive again", lambda view: view.alive == {1, 2, 3}, PATIENCE)
    assert fault.longest_gap < UNDISTURBED_LIMIT
    keeps_going(before, after)
    keeps_going(before, group.whole())


def test_master_and_controller_leader_killed(lab: Lab, group: Group, load: Load) -> None:
    before = group.whole()
    leader = lab.controllers.wait_leader(PATIENCE)
    try:
        with load.measure("master and controller leader: kill -9 of both") as fault:
            lab.controllers[leader].kill9()
            group.broker(before.master_id).process.kill9()
            elected(group, before, fault)
    finally:
        lab.controllers.start_member(leader).wait_ready(PATIENCE)
    assert fault.longest_gap < FAILOVER_LIMIT


def test_logs_agree_while_they_are_written(group: Group, load: Load, engine: Engine) -> None:
    group.whole()
    load.wait_written(FILE_SIZE)
    before = len(load.acknowledged)
    verdict = verifying.aligned(group.stores, least=FILE_SIZE, engine=engine)
    assert len(load.acknowledged) > before
    assert all(len(replica.epochs) > 1 for replica in verdict.replicas)
    assert verdict.structure is not None
    assert verdict.structure.records > before // 2  # Java saves its confirm offset from time to time


def test_nothing_acknowledged_is_lost(load: Load) -> None:
    audit = load.finish()
    assert audit["complete"], audit["queues"]
    assert audit["acknowledged"] == len(load.acknowledged) > 0
    assert audit["missingCount"] == 0, audit["missing"]
