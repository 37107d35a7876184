"""Which broker is accepted; and what a slave's broker receives about the log, in virtual time: in portions, never after
later messages."""

import asyncio
from typing import cast

import pytest

from rocketmq_formats.remoting.ha_info import decode_settings
from rocketmq_formats.replica_link import (
    PROTOCOL,
    Alive,
    Counts,
    FromSidecar,
    Hello,
    NamedSettings,
    Prepare,
    Replicated,
)
from rocketmq_sidecar.control.broker_link import BrokerLink
from rocketmq_sidecar.control.broker_side import MAX_UNREPORTED_BYTES, REPLICATED_SECONDS, BrokerEvents, BrokerSide
from rocketmq_sidecar.control.replication_worker import ReplicationPort
from rocketmq_sidecar.settings import SidecarSettings

pytestmark = pytest.mark.looptime


class Link:
    """Keeps what is said to the broker."""

    def __init__(self) -> None:
        self.said: list[FromSidecar] = []

    def send(self, message: FromSidecar) -> None:
        self.said.append(message)

    async def stop(self) -> None:
        self.said.clear()


class Events:
    """Keeps whom it hears of."""

    def __init__(self) -> None:
        self.heard: list[Hello] = []

    def on_hello(self, hello: Hello) -> None:
        self.heard.append(hello)

    def on_store(self, refuses: str | None) -> None:
        pass

    def on_disconnect(self) -> None:
        pass


@pytest.mark.parametrize("controllers", [True, False])
async def test_a_broker_of_the_other_mode_is_refused(controllers: bool) -> None:
    settings = SidecarSettings(controller_addr="127.0.0.1:1", enable_controller_mode=controllers)
    events = Events()
    broker = BrokerSide(settings, cast("BrokerEvents", events), lambda: pytest.fail("not asked for"), lambda: 0.0)
    size = settings.mapped_file_size_commit_log

    def hello(controllers: bool) -> Hello:
        names = settings.broker_cluster_name, settings.name
        return Hello(PROTOCOL, *names, "10.0.0.1:10911", 0, 0, 0, size, controllers=controllers)

    assert "enableControllerMode" in str(broker.on_hello(hello(not controllers)))
    assert events.heard == []
    assert broker.on_hello(hello(controllers)) is None
    assert events.heard == [hello(controllers)]
    await broker.stop()


async def test_a_broker_learns_what_to_name_of_both_halves() -> None:
    settings = SidecarSettings(controller_addr="127.0.0.1:1", durability="relaxed", ha_max_time_slave_not_catchup=7)
    broker = BrokerSide(settings, cast("BrokerEvents", Events()), lambda: pytest.fail("not asked for"), lambda: 0.0)
    link = Link()
    broker.link = cast("BrokerLink", link)
    names, size = (settings.broker_cluster_name, settings.name), settings.mapped_file_size_commit_log
    hello = Hello(PROTOCOL, *names, "10.0.0.1:10911", 0, 0, 0, size, settings={"maxMessageSize": "1000"})
    assert broker.on_hello(hello) is None
    (named,) = (message for message in link.said if isinstance(message, NamedSettings))
    values = decode_settings(named.text)
    assert (values["maxMessageSize"], values["durability"]) == ("1000", "relaxed")
    assert values["haMaxTimeSlaveNotCatchup"] == "7"
    await broker.stop()


def side() -> tuple[BrokerSide, Link]:
    def replication() -> ReplicationPort:
        raise AssertionError("not asked for here")

    made = BrokerSide(
        SidecarSettings(controller_addr="127.0.0.1:1"), cast("BrokerEvents", Events()), replication, lambda: 0.0
    )
    link = Link()
    made.link = cast("BrokerLink", link)
    return made, link


async def test_a_slave_reports_in_portions() -> None:
    broker, link = side()
    for offset in range(100, 200):
        broker.replicated(offset, offset)
    assert link.said == []
    await asyncio.sleep(REPLICATED_SECONDS)
    assert link.said == [Replicated(199, 199)]
    await asyncio.sleep(1)
    broker.replicated(200, 200)
    await asyncio.sleep(REPLICATED_SECONDS)
    assert link.said == [Replicated(199, 199), Replicated(200, 200)]


async def test_the_next_message_comes_after_it() -> None:
    broker, link = side()
    broker.replicated(100, 50)
    broker.send(Prepare(2))
    assert link.said == [Replicated(100, 50), Prepare(2)]
    await asyncio.sleep(1)
    assert len(link.said) == 2


async def test_no_large_part_of_the_log_stays_unreported() -> None:
    broker, link = side()
    broker.replicated(MAX_UNREPORTED_BYTES, 0)
    assert link.said == []
    broker.replicated(MAX_UNREPORTED_BYTES + 1, 0)
    assert link.said == [Replicated(MAX_UNREPORTED_BYTES + 1, 0)]


async def test_a_broker_is_unregistered_as_long_as_it_says_so() -> None:
    broker, _ = side()
    for why in (None, "a:1: not within 3 s", None, "a:1: Connection refused"):
        broker.on_message(Alive(Counts(), unregistered=why))
        assert broker.unregistered == why
    broker.on_disconnect("it was killed")
    assert broker.unregistered is None


async def test_a_broker_acts_as_long_as_it_says_so() -> None:
    broker, _ = side()
    assert not broker.acting
    for acting in (True, False, True):
        broker.on_message(Alive(Counts(), acting=acting))
        assert broker.acting is acting
    broker.on_disconnect("it was killed")
    assert not broker.acting
