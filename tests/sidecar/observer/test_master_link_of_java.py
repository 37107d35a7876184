"""A Java slave follows its master: its sidecar sets the address, and has it connect again if it follows another."""

import asyncio
from pathlib import Path

import pytest

from rocketmq_formats.remoting.controller import EpochEntry
from rocketmq_sidecar.observer.broker import BrokerError
from rocketmq_sidecar.observer.master_link import AT_ONCE, HOUSEKEEPING, JAVA_DEFAULT
from tests.sidecar.observer.fakes import JavaBroker, JavaGroup, Sidecar, keep_identity

pytestmark = pytest.mark.looptime


@pytest.fixture
def group() -> JavaGroup:
    """Broker 1 is a slave of 2 outside the set; 3 was master before."""
    group = JavaGroup()
    group.brokers[1].role, group.brokers[2].role = "slave", "master"
    group.master_id, group.epoch, group.in_sync = 2, 2, frozenset({2, 3})
    return group


@pytest.fixture
def slave(group: JavaGroup) -> JavaBroker:
    return group.brokers[1]


@pytest.fixture
async def sidecar(group: JavaGroup, tmp_path: Path) -> Sidecar:
    keep_identity(tmp_path)
    return Sidecar(tmp_path, group)


async def poll_for(sidecar: Sidecar, seconds: float) -> None:
    """Poll once a second."""
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        await sidecar.poll()
        await asyncio.sleep(1)


async def test_a_slave_in_the_set_is_left_alone(sidecar: Sidecar, group: JavaGroup, slave: JavaBroker) -> None:
    group.in_sync = frozenset({1, 2, 3})
    slave.ha_address = slave.connected_to = "ha-3"
    await poll_for(sidecar, 60)
    assert (slave.ha_address, slave.told) == ("ha-3", [])


@pytest.mark.parametrize("behind", [0, 100], ids=["level with its master", "behind and no further"])
@pytest.mark.parametrize("interval", [None, "7000"], ids=["Java's default", "the user's interval"])
async def test_a_slave_that_follows_another_connects_again(
    sidecar: Sidecar, slave: JavaBroker, behind: int, interval: str | None
) -> None:
    slave.end -= behind
    slave.ha_address, slave.connected_to = "ha-2", "ha-3"
    if interval is not None:
        slave.configuration[HOUSEKEEPING] = interval
    await poll_for(sidecar, 9)
    assert (slave.connected_to, slave.told) == ("ha-3", [])
    await poll_for(sidecar, 5)
    assert slave.connected_to == "ha-2"
    assert slave.configuration[HOUSEKEEPING] == (interval or JAVA_DEFAULT)


async def test_a_slave_that_catches_up_is_left_alone(sidecar: Sidecar, group: JavaGroup, slave: JavaBroker) -> None:
    slave.ha_address = slave.connected_to = "ha-2"
    for _ in range(60):
        group.brokers[2].end += 1000
        slave.end += 10
        await poll_for(sidecar, 1)
    assert slave.told == []


@pytest.mark.parametrize("epochs", [(), (EpochEntry(epoch=2, start_offset=1000),)], ids=["none", "an empty one"])
async def test_a_slave_that_would_lose_an_epoch_stays_connected(
    sidecar: Sidecar, slave: JavaBroker, epochs: tuple[EpochEntry, ...]
) -> None:
    slave.ha_address, slave.connected_to = "ha-2", "ha-3"
    slave.epochs = epochs
    await poll_for(sidecar, 60)
    assert slave.told == []
    slave.end += 1
    slave.epochs = (EpochEntry(epoch=2, start_offset=1000),)
    await poll_for(sidecar, 30)
    assert slave.connected_to == "ha-2"


async def test_a_learner_never_joins_the_set(sidecar: Sidecar, slave: JavaBroker) -> None:
    slave.configuration["asyncLearner"] = "true"
    slave.ha_address = slave.connected_to = "ha-2"
    await poll_for(sidecar, 60)
    assert slave.told == []


async def test_what_keeps_it_outside_for_another_reason_is_tried_less_and_less(
    sidecar: Sidecar, slave: JavaBroker
) -> None:
    slave.ha_address = slave.connected_to = "ha-2"
    await poll_for(sidecar, 600)
    assert 4 <= slave.told.count({HOUSEKEEPING: AT_ONCE}) <= 6
    assert slave.configuration[HOUSEKEEPING] == JAVA_DEFAULT


async def test_a_slave_that_was_inside_for_a_moment_is_soon_tried_again(
    sidecar: Sidecar, group: JavaGroup, slave: JavaBroker
) -> None:
    slave.ha_address = slave.connected_to = "ha-2"
    await poll_for(sidecar, 100)
    group.set_changes += 2  # in and out again, between two polls
    tries = slave.told.count({HOUSEKEEPING: AT_ONCE})
    await poll_for(sidecar, 15)
    assert slave.told.count({HOUSEKEEPING: AT_ONCE}) == tries + 1


async def test_the_interval_is_set_back_whoever_dies(
    sidecar: Sidecar, group: JavaGroup, slave: JavaBroker, tmp_path: Path
) -> None:
    slave.ha_address, slave.connected_to = "ha-2", "ha-3"

    async def poll_and_reconnect() -> None:
        await poll_for(sidecar, 30)

    polling = asyncio.create_task(poll_and_reconnect())
    while slave.configuration.get(HOUSEKEEPING) != AT_ONCE:
        await asyncio.sleep(0.01)
    slave.trouble = BrokerError("no answer")
    polling.cancel()  # as a sidecar that is killed: it cannot reach the broker any more
    await asyncio.gather(polling, return_exceptions=True)
    assert slave.configuration[HOUSEKEEPING] == AT_ONCE
    slave.trouble = None
    await Sidecar(tmp_path, group).poll()
    assert slave.configuration[HOUSEKEEPING] == JAVA_DEFAULT
