"""Members in one event loop over real sockets and files: the application's way in."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from rocketmq_controller.raft import (
    ApplyError,
    CommandTooLargeError,
    FatalRaftError,
    Limits,
    NotLeaderError,
    ProposalLostError,
    RaftSettings,
    RaftSettingsError,
    RaftStatus,
    Replica,
    Role,
    Timings,
    TransferError,
)
from tests.ports import free_ports
from tests.sim.commands import CommandList

SECRET = b"0123456789abcdef"


class Quorum:
    """Replicas by id, and a way to wait for what they tell."""

    def __init__(self, folder: Path, names: str = "abc") -> None:
        self.folder = folder
        self.peers = dict(zip(names, (("127.0.0.1", port) for port in free_ports(len(names))), strict=True))
        self.replicas: dict[str, Replica] = {}
        self.states: dict[str, CommandList] = {}
        self.fatal: list[FatalRaftError] = []
        self._changed = asyncio.Event()

    async def start(self, name: str, *, limits: Limits | None = None) -> Replica:
        settings = RaftSettings(
            self_id=name,
            peers=self.peers,
            secret=SECRET,
            store_path=self.folder / name,
            bind_host="127.0.0.1",
            limits=limits or Limits(),
        )
        state = self.states[name] = CommandList()
        replica = Replica(settings, state, on_role_change=self._told, on_fatal=self.fatal.append)
        await replica.start()
        self.replicas[name] = replica
        return replica

    async def stop(self, name: str, *, hand_over: bool = False) -> None:
        await self.replicas.pop(name).stop(hand_over=hand_over)

    def _told(self, _: RaftStatus) -> None:
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def leader(self) -> tuple[str, Replica]:
        await self.until(lambda: any(replica.status().is_serving for replica in self.replicas.values()))
        return next((name, replica) for name, replica in self.replicas.items() if replica.status().is_serving)


@pytest.fixture
async def quorum(tmp_path: Path) -> AsyncIterator[Quorum]:
    made = Quorum(tmp_path)
    yield made
    for name in list(made.replicas):
        await made.stop(name)


async def propose(quorum: Quorum, command: bytes) -> object:
    """As a client: again until it is answered."""
    while True:
        _, leader = await quorum.leader()
        try:
            return await leader.propose(command)
        except (NotLeaderError, ProposalLostError):
            await asyncio.sleep(0.01)


async def test_commands_are_applied_everywhere_and_survive_a_restart_of_all(quorum: Quorum) -> None:
    for name in "abc":
        await quorum.start(name)
    _, leader = await quorum.leader()
    results = await asyncio.gather(*(leader.propose(b"%d" % number) for number in range(200)))
    assert results == list(range(1, 201))
    for name in "abc":
        await quorum.stop(name)
    for name in "abc":
        await quorum.start(name)
    assert await propose(quorum, b"after") == 201
    _, leader = await quorum.leader()
    await leader.barrier()
    name = next(name for name, replica in quorum.replicas.items() if replica is leader)
    assert quorum.states[name].commands == [b"%d" % number for number in range(200)] + [b"after"]


async def test_a_leader_that_goes_is_followed_by_another(quorum: Quorum) -> None:
    for name in "abc":
        await quorum.start(name)
    first, _ = await quorum.leader()
    await propose(quorum, b"before")
    await quorum.stop(first)
    assert await propose(quorum, b"after") == 2
    second, _ = await quorum.leader()
    assert second != first


async def test_leadership_is_handed_over_on_request_and_at_stop(quorum: Quorum) -> None:
    for name in "abc":
        await quorum.start(name)
    first, leader = await quorum.leader()
    await propose(quorum, b"x")
    target = next(name for name in "abc" if name != first)
    await leader.transfer_leadership(target)
    assert leader.status().role is not Role.LEADER
    with pytest.raises(NotLeaderError):
        leader.propose(b"x")
    with pytest.raises(NotLeaderError):
        await leader.barrier()
    name, leader = await quorum.leader()
    await quorum.stop(name, hand_over=True)
    await propose(quorum, b"y")


async def test_a_hand_over_to_a_member_that_is_away_fails_and_leaves_the_leader(quorum: Quorum) -> None:
    await quorum.start("a")
    await quorum.start("b")
    _, leader = await quorum.leader()
    with pytest.raises(TransferError, match="c is not connected"):
        await leader.transfer_leadership("c")
    await propose(quorum, b"x")


async def test_a_follower_knows_the_leader(quorum: Quorum) -> None:
    for name in "abc":
        await quorum.start(name)
    first, _ = await quorum.leader()
    other = next(replica for name, replica in quorum.replicas.items() if name != first)
    await quorum.until(lambda: other.status().leader_id == first)
    with pytest.raises(NotLeaderError) as caught:
        other.propose(b"x")
    assert caught.value.leader_id == first


async def test_a_single_member(tmp_path: Path) -> None:
    quorum = Quorum(tmp_path, "a")
    replica = await quorum.start("a", limits=Limits(max_command_bytes=100))
    assert await propose(quorum, b"x") == 1
    await replica.barrier()
    assert replica.is_leader
    with pytest.raises(CommandTooLargeError):
        replica.propose(bytes(101))
    await quorum.stop("a", hand_over=True)
    assert not replica.is_leader
    with pytest.raises(NotLeaderError):
        replica.propose(b"x")


async def test_a_state_machine_that_raises_stops_the_member(tmp_path: Path) -> None:
    quorum = Quorum(tmp_path, "a")
    replica = await quorum.start("a")
    await quorum.leader()

    def fail(index: int, command: bytes) -> object:
        raise KeyError("broker-a")

    quorum.states["a"].apply = fail  # type: ignore[method-assign]
    proposal = replica.propose(b"x")
    with pytest.raises(ProposalLostError):
        await proposal
    assert [type(error) for error in quorum.fatal] == [ApplyError]
    assert not replica.is_leader
    await quorum.stop("a", hand_over=True)


async def test_a_damaged_snapshot_refuses_the_start(tmp_path: Path) -> None:
    quorum = Quorum(tmp_path, "a")
    small = Limits(compact_after=10, keep_after_compaction=0)
    await quorum.start("a", limits=small)
    for number in range(20):
        await propose(quorum, b"%d" % number)
    await quorum.stop("a")
    file = tmp_path / "a" / "snapshot"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(FatalRaftError, match=r"snapshot.*offset"):
        await quorum.start("a", limits=small)


async def test_a_folder_in_use_refuses_the_start(tmp_path: Path) -> None:
    quorum = Quorum(tmp_path, "a")
    first = await quorum.start("a")
    with pytest.raises(FatalRaftError):
        await quorum.start("a")
    await first.stop(hand_over=False)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"self_id": "x"}, "not among the members"),
        ({"secret": b"short"}, "openssl rand"),
        ({"timings": Timings(heartbeat=0.2)}, "three times heartbeat"),
        ({"timings": Timings(lease=0.4)}, "95 %"),
        ({"timings": Timings(lease=0.15)}, "twice heartbeat"),
        ({"timings": Timings(election_max=0.3)}, "election_max"),
        ({"timings": Timings(gone_min=0.3)}, "gone_max"),
        ({"timings": Timings(heartbeat=0.0)}, "heartbeat=0.0"),
        ({"limits": Limits(batch_bytes=2**30)}, "16 MiB"),
        ({"limits": Limits(batch_entries=0)}, "batch_entries"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_by_name(
    tmp_path: Path, change: dict[str, object], text: str
) -> None:
    values = {"self_id": "a", "peers": {"a": ("localhost", 1)}, "secret": SECRET, "store_path": tmp_path}
    with pytest.raises(RaftSettingsError, match=text):
        RaftSettings(**(values | change))
