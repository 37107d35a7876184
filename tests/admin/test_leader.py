"""Finding the leader while controllers are dead, hung, cut off or voting; the walk itself, without sleeping."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import pytest

from rocketmq_admin import leader
from rocketmq_admin.caller import Caller
from rocketmq_admin.errors import ClusterRefusedError, UnreachableError
from rocketmq_admin.leader import LeaderAnswer, call_leader
from rocketmq_formats.remoting.command import RemotingCommand, request, response
from rocketmq_formats.remoting.controller import GetMetaDataResponseHeader
from rocketmq_runtime.remoting.server import Answer, Peer, RemotingServer
from tests.runtime.remoting.remoting_kit import Recorder, calling, serving

DEAD = "127.0.0.1:1"
UNKNOWN = "controller-0.invalid:9878"
OTHER = "another controller's"


class Controller(Recorder):
    """Names the leaders in `leaders`, one per question, the last forever; itself it leads if `leading`."""

    def __init__(self) -> None:
        super().__init__(self._respond)
        self.leaders: list[str | None] = [None]
        self.leading: list[bool | None] = [True]
        """One per request for the leader, the last forever. None: no answer."""
        self.hung = False
        self.said: str | None = None
        """The address that it says of itself; None: the one that reaches it."""
        self.server: RemotingServer | None = None

    @property
    def address(self) -> str:
        assert self.server is not None
        return f"127.0.0.1:{self.server.port}"

    def _respond(self, asked: RemotingCommand, peer: Peer) -> Answer:
        if self.hung:
            return None
        if asked.code == 1005:
            named = self.leaders.pop(0) if len(self.leaders) > 1 else self.leaders[0]
            leads = named == (self.said or self.address)
            header = GetMetaDataResponseHeader(controller_leader_address=named, is_leader=leads)
            return response(asked, 0, header=header)
        leading = self.leading.pop(0) if len(self.leading) > 1 else self.leading[0]
        if leading is None:
            return None
        return response(asked, 0, "done") if leading else response(asked, 2007, "The controller is not in leader state")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "PAUSE_SECONDS", 0)


@pytest.fixture
async def controllers() -> AsyncIterator[list[Controller]]:
    """Three; none leads yet."""
    three = [Controller(), Controller(), Controller()]
    async with AsyncExitStack() as stack:
        for controller in three:
            controller.server = await stack.enter_async_context(serving(controller))
        yield three


async def ask(addresses: Sequence[str], *, timeout: float = 30.0, patience: float | None = None) -> LeaderAnswer:
    async with calling() as client:
        return await call_leader(Caller(client, timeout), addresses, request(1002), patience=patience)


async def test_a_follower_sends_us_to_the_leader(controllers: list[Controller]) -> None:
    controllers[0].leaders = controllers[2].leaders = [controllers[2].address]
    answer = await ask([controllers[0].address])
    assert (answer.address, answer.command.remark) == (controllers[2].address, "done")
    assert [asked.code for asked in controllers[0].requests] == [1005]


async def test_dead_addresses_are_passed_over(controllers: list[Controller]) -> None:
    controllers[1].leaders = [controllers[1].address]
    assert (await ask([DEAD, controllers[1].address])).address == controllers[1].address


async def test_a_hung_address_costs_its_time_out_only(controllers: list[Controller]) -> None:
    controllers[0].hung = True
    controllers[1].leaders = [controllers[1].address]
    addresses = [controllers[0].address, controllers[1].address]
    assert (await ask(addresses, timeout=1)).address == controllers[1].address


async def test_who_still_believes_in_a_dead_leader_does_not_stop_us(controllers: list[Controller]) -> None:
    controllers[0].leaders = [DEAD]
    controllers[1].leaders = controllers[2].leaders = [controllers[2].address]
    answer = await ask([controllers[0].address, controllers[1].address])
    assert answer.address == controllers[2].address


async def test_an_election_is_waited_for(controllers: list[Controller]) -> None:
    controllers[0].leaders = [None, None, controllers[1].address]
    controllers[1].leaders = [controllers[1].address]
    controllers[1].leading = [False, True]  # elected, but its first entry is not committed yet
    assert (await ask([controllers[0].address])).address == controllers[1].address
    assert [asked.code for asked in controllers[1].requests if asked.code != 1005] == [1002, 1002]


async def test_a_leader_named_by_many_is_asked_once_a_round(controllers: list[Controller]) -> None:
    for controller in controllers:
        controller.leaders = [controllers[0].address]
    controllers[0].leading = [False, True]
    await ask([controller.address for controller in controllers])
    assert [asked.code for asked in controllers[0].requests].count(1002) == 2


async def test_no_controller_leads(controllers: list[Controller]) -> None:
    with pytest.raises(UnreachableError, match="reports no leader"):
        await ask([controllers[0].address], patience=0)


async def test_never_ready_to_lead(controllers: list[Controller]) -> None:
    controllers[0].leaders = [controllers[0].address]
    controllers[0].leading = [False]
    with pytest.raises(ClusterRefusedError, match="CONTROLLER_NOT_LEADER"):
        await ask([controllers[0].address], patience=0)


async def test_no_controller_there_is_reported_at_once() -> None:
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1: .*; .*127\.0\.0\.1:2: "):
        await ask([DEAD, "127.0.0.1:2"])


async def test_an_unanswered_request_is_not_made_again(controllers: list[Controller]) -> None:
    for controller in controllers:
        controller.leaders = [controllers[2].address]
    controllers[2].leading = [None]
    with pytest.raises(UnreachableError, match="no answer"):
        await ask([controllers[0].address, controllers[1].address], timeout=1)
    assert [asked.code for asked in controllers[2].requests] == [1005, 1002]


@pytest.mark.parametrize("said", [DEAD, UNKNOWN, OTHER])
async def test_a_leader_is_asked_where_it_was_reached(controllers: list[Controller], said: str) -> None:
    """Whatever address the controllers name: a dead one, an unknown name, or one that is another controller's here."""
    if said is OTHER:
        said = controllers[1].address
    controllers[2].said = said
    for controller in controllers:
        controller.leaders = [said]
    controllers[1].said = "10.0.0.2:9878"
    answer = await ask([controller.address for controller in controllers], patience=0)
    assert answer.address == controllers[2].address
    assert [asked.code for asked in controllers[1].requests] in ([1005], [])


@pytest.mark.timeout(300)
async def test_a_said_address_that_hangs_delays_nothing(controllers: list[Controller]) -> None:
    controllers[0].hung = True
    controllers[1].leaders = [controllers[0].address]
    controllers[2].leaders = [controllers[0].address]
    controllers[2].said = controllers[0].address
    answer = await ask([controllers[1].address, controllers[2].address], timeout=3600)
    assert answer.address == controllers[2].address


async def test_a_said_address_that_nobody_reaches_is_named(controllers: list[Controller]) -> None:
    controllers[0].leaders = [DEAD]
    with pytest.raises(UnreachableError, match=rf"reports {DEAD} as leader; cannot connect to {DEAD}"):
        await ask([controllers[0].address], patience=0)
