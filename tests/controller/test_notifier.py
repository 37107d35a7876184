"""The notices of a new master and their order: the master first, the others once it has begun its epoch."""

import asyncio
from collections.abc import Mapping

import pytest

from rocketmq_controller.domain.model import BrokerId
from rocketmq_controller.notifier import MASTER_TIMEOUT, RETRY_DELAYS, SETTLE, Announcement, RoleNotifier
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.remoting.controller import (
    BrokerHeartbeatRequestHeader,
    NotifyBrokerRoleChangedRequestHeader,
    SyncStateSet,
)
from rocketmq_runtime.remoting.client import ConnectError

pytestmark = pytest.mark.looptime

MASTER, SLAVE, OTHER = BrokerId(1), BrokerId(2), BrokerId(3)
ADDRESSES = {MASTER: "m", SLAVE: "s", OTHER: "o"}


class FakeClient:
    """Remembers what was sent when; addresses in `dead` refuse."""

    def __init__(self) -> None:
        self.told: list[tuple[float, str, int]] = []
        self.dead: set[str] = set()
        self.tries = 0

    async def send_oneway(self, address: str, command: RemotingCommand) -> None:
        self.tries += 1
        if address in self.dead:
            raise ConnectError("refused")
        epoch = int((command.ext_fields or {})["masterEpoch"])
        self.told.append((asyncio.get_running_loop().time(), address, epoch))

    @property
    def addresses(self) -> list[str]:
        return [address for _, address, _ in self.told]


def announcement(epoch: int = 5, addresses: Mapping[BrokerId, str] = ADDRESSES) -> Announcement:
    header = NotifyBrokerRoleChangedRequestHeader(
        master_address=ADDRESSES[MASTER], master_epoch=epoch, sync_state_set_epoch=1, master_broker_id=MASTER
    )
    body = SyncStateSet(sync_state_set=frozenset({MASTER}), sync_state_set_epoch=1)
    return Announcement("b", header, body, addresses)


def heartbeat(broker_id: int, epoch: int) -> BrokerHeartbeatRequestHeader:
    return BrokerHeartbeatRequestHeader(
        cluster_name="c", broker_addr="a", broker_name="b", broker_id=broker_id, epoch=epoch
    )


@pytest.fixture
async def client() -> FakeClient:
    return FakeClient()


@pytest.fixture
async def notifier(client: FakeClient) -> RoleNotifier:
    return RoleNotifier(client)  # type: ignore[arg-type]


async def test_the_others_are_notified_once_the_master_has_begun_its_epoch(
    notifier: RoleNotifier, client: FakeClient
) -> None:
    notifier.announce(announcement(), lambda _: True)
    await asyncio.sleep(0.5)
    assert client.addresses == ["m"]
    notifier.on_heartbeat(heartbeat(MASTER, 4))
    notifier.on_heartbeat(heartbeat(SLAVE, 5))
    await asyncio.sleep(0.5)
    assert client.addresses == ["m"], "neither an older epoch nor another broker's counts"
    notifier.on_heartbeat(heartbeat(MASTER, 5))
    await asyncio.sleep(SETTLE * 1.5)
    assert sorted(client.addresses) == ["m", "o", "s"]


async def test_a_silent_master_does_not_keep_the_others_waiting_forever(
    notifier: RoleNotifier, client: FakeClient
) -> None:
    notifier.announce(announcement(), lambda _: True)
    await asyncio.sleep(MASTER_TIMEOUT + 0.1)
    assert sorted(client.addresses) == ["m", "o", "s"]


async def test_a_newer_election_replaces_what_was_held_back(notifier: RoleNotifier, client: FakeClient) -> None:
    notifier.announce(announcement(5), lambda _: True)
    await asyncio.sleep(0.1)
    notifier.announce(announcement(6), lambda _: True)
    notifier.on_heartbeat(heartbeat(MASTER, 6))
    await asyncio.sleep(2 * MASTER_TIMEOUT)
    assert [(address, epoch) for _, address, epoch in client.told if address != "m"] == [("s", 6), ("o", 6)]


async def test_a_notice_is_tried_again_until_it_is_handed_over(notifier: RoleNotifier, client: FakeClient) -> None:
    client.dead.add("m")
    notifier.announce(announcement(addresses={MASTER: "m"}), lambda _: True)
    await asyncio.sleep(sum(RETRY_DELAYS[:2]) + 0.01)
    client.dead.clear()
    await asyncio.sleep(RETRY_DELAYS[2])
    assert client.addresses == ["m"]


async def test_a_broker_that_died_is_no_longer_notified(notifier: RoleNotifier, client: FakeClient) -> None:
    client.dead.add("m")
    notifier.announce(announcement(addresses={MASTER: "m"}), lambda _: False)
    await asyncio.sleep(10)
    assert client.tries == 1


async def test_an_end_gives_up_what_is_held_and_what_is_tried(notifier: RoleNotifier, client: FakeClient) -> None:
    client.dead.add("m")
    notifier.announce(announcement(), lambda _: True)
    await asyncio.sleep(0.01)
    await notifier.stop()
    tries = client.tries
    await asyncio.sleep(10)
    assert client.tries == tries
