"""Members in one event loop over real sockets and files: the application's way in."""

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from rocketmq_controller.raft import (
    AddMember,
    ApplyError,
    CommandTooLargeError,
    FatalRaftError,
    Limits,
    NotLeaderError,
    ProposalLostError,
    RaftSettings,
    RaftSettingsError,
    RaftStatus,
    RemoveMember,
    Replica,
    Role,
    Timings,
    TransferError,
)
from rocketmq_controller.raft.errors import ForeignLineageError
from rocketmq_controller.raft.ports import Snapshot
from rocketmq_controller.raft.storage.snapshot_file import SnapshotFile
from rocketmq_controller.raft.storage.storage_errors import ForeignStoreError
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

    async def start(self, name: str, *, limits: Limits | None = None, state: CommandList | None = None) -> Replica:
        settings = RaftSettings(
            self_id=name,
            peers=self.peers,
            secret=SECRET,
            store_path=self.folder / name,
            bind_host="127.0.0.1",
            limits=limits or Limits(),
        )
        state = self.states[name] = state or CommandList()
        replica = Replica(settings, state, on_role_change=self._on_role_change, on_fatal=self.fatal.append)
        await replica.start()
        self.replicas[name] = replica
        return replica

    async def stop(self, name: str, *, hand_over: bool = False) -> None:
        await self.replicas.pop(name).stop(hand_over=hand_over)

    def _on_role_change(self, _: RaftStatus) -> None:
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_true(self, condition: Callable[[], bool]) -> None:
        """For conditions that no callback reports."""
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.01)

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
    for name in "abc":  # a quorum begins when all are there
        await quorum.start(name)
    first, leader = await quorum.leader()
    away = next(name for name in "abc" if name != first)
    await quorum.stop(away)
    await quorum.until_true(lambda: not any(m.connected for m in leader.status().members if m.id == away))
    with pytest.raises(TransferError, match=f"{away} is not connected"):
        await leader.transfer_leadership(away)
    await propose(quorum, b"x")


async def test_a_quorum_begins_when_all_its_members_are_there(quorum: Quorum) -> None:
    """Two of three new members cannot know whether the third one has a log that they have lost."""
    first = await quorum.start("b")
    second = await quorum.start("c")
    await quorum.until_true(lambda: all(r.status().members[1].connected for r in (first, second)))
    await asyncio.sleep(4 * Timings().election_min)
    assert not any(replica.status().is_serving or replica.status().voter for replica in (first, second))
    await quorum.start("a")
    await propose(quorum, b"x")
    assert len({replica.status().lineage for replica in quorum.replicas.values()}) == 1


async def test_a_wiped_member_is_caught_up_before_it_votes(quorum: Quorum, tmp_path: Path) -> None:
    for name in "abc":
        await quorum.start(name)
    first, _ = await quorum.leader()
    wiped = next(name for name in "abc" if name != first)
    await propose(quorum, b"x")
    await quorum.stop(wiped)
    shutil.rmtree(tmp_path / wiped)
    back = await quorum.start(wiped)
    assert not back.status().voter
    await quorum.until_true(lambda: back.status().voter)
    await quorum.stop(first)
    assert await propose(quorum, b"y") == 2


async def test_a_member_of_another_quorum_ends(quorum: Quorum, tmp_path: Path) -> None:
    for name in "abc":
        await quorum.start(name)
    await propose(quorum, b"x")
    for name in "abc":
        await quorum.stop(name)
    (tmp_path / "a").rename(tmp_path / "old")
    for name in "bc":
        shutil.rmtree(tmp_path / name)
    for name in "abc":
        await quorum.start(name)
    await propose(quorum, b"y")
    await quorum.stop("a")
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "old").rename(tmp_path / "a")
    await quorum.start("a")
    await quorum.until_true(lambda: bool(quorum.fatal))
    assert [type(error) for error in quorum.fatal] == [ForeignLineageError]
    assert await propose(quorum, b"z") == 2


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
        ({"peers": {f"n{number}": ("h", 1 + number) for number in range(16)}, "self_id": "n0"}, "at most 15"),
        ({"secret": b"short"}, "openssl rand"),
        ({"timings": Timings(heartbeat=0.2)}, "three times heartbeat"),
        ({"timings": Timings(lease_share=0.96)}, "0.95"),
        ({"timings": Timings(step_down=0.1)}, "step_down"),
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


class Where(CommandList):
    """Remembers which threads made and read its snapshots."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: dict[str, set[int]] = {"encode": set(), "load": set(), "take over": set()}

    def capture(self) -> Callable[[], bytes]:
        encode = super().capture()

        def noted() -> bytes:
            self.threads["encode"].add(threading.get_ident())
            return encode()

        return noted

    def load(self, snapshot: bytes) -> Callable[[], None]:
        self.threads["load"].add(threading.get_ident())
        take_over = super().load(snapshot)

        def noted() -> None:
            self.threads["take over"].add(threading.get_ident())
            take_over()

        return noted


async def test_snapshots_are_made_stored_and_read_outside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved_in: set[int] = set()
    save = SnapshotFile.save

    def noted_save(self: SnapshotFile, snapshot: Snapshot) -> None:
        saved_in.add(threading.get_ident())
        save(self, snapshot)

    monkeypatch.setattr(SnapshotFile, "save", noted_save)
    quorum = Quorum(tmp_path)
    limits = Limits(compact_after=10, keep_after_compaction=0)
    for name in "abc":
        quorum.states[name] = Where()
        await quorum.start(name, limits=limits, state=quorum.states[name])
    leader_name, leader = await quorum.leader()
    away = next(name for name in "abc" if name != leader_name)
    await quorum.stop(away)
    for number in range(40):
        await leader.propose(b"%d" % number)
    await quorum.until_true(lambda: leader.status().snapshot_index > 30)
    joined = Where()
    await quorum.start(away, limits=limits, state=joined)
    await quorum.until_true(lambda: len(joined.commands) == 40)
    leading = quorum.states[leader_name]
    assert isinstance(leading, Where)
    here = {threading.get_ident()}
    assert leading.threads["encode"]
    assert saved_in
    assert joined.threads["take over"] == here
    assert not here & (leading.threads["encode"] | saved_in)
    # The member that was away read its own snapshot at the start, then the leader's in the thread.
    assert joined.threads["load"] - here
    for name in tuple(quorum.replicas):
        await quorum.stop(name)


async def test_members_without_an_address_refuse_the_start(quorum: Quorum) -> None:
    """The store knows who they are, the file does not say where."""
    for name in "abc":
        await quorum.start(name)
    await quorum.leader()
    await quorum.stop("a")
    peers = dict(quorum.peers)
    del quorum.peers["c"]
    with pytest.raises(ForeignStoreError, match="does not say where c is"):
        await quorum.start("a")
    quorum.peers = peers
    await quorum.start("a")


async def test_a_replica_is_added_and_another_removed(quorum: Quorum) -> None:
    for name in "abc":
        await quorum.start(name)
    (port,) = free_ports(1)
    _, leader = await quorum.leader()
    quorum.peers["d"] = ("127.0.0.1", port)
    await quorum.start("d")
    await quorum.until_true(lambda: 0 < leader.status().configuration.index <= leader.status().commit_index)
    assert not leader.status().configuration.addresses()  # the files say where they are, until the first change
    await leader.change_members(AddMember("d", "127.0.0.1", port))
    await quorum.until_true(lambda: quorum.replicas["d"].status().voter)
    await quorum.until_true(lambda: leader.status().commit_index >= leader.status().configuration.index)
    old = next(name for name, replica in quorum.replicas.items() if replica is not leader and name != "d")
    await leader.change_members(RemoveMember(old))
    await quorum.until_true(lambda: quorum.replicas[old].status().removed)
    assert leader.status().configuration.addresses() == {name: quorum.peers[name] for name in "abcd" if name != old}
    assert await leader.propose(b"x") == 1


class Clockwork:
    """A machine that wants a tick `PERIOD` after the last one."""

    PERIOD = 0.045
    peers = ()
    role, term, leader, is_serving = Role.FOLLOWER, 1, None, False
    last_index = commit_index = last_applied = snapshot_index = 0

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.ticked = [clock()]

    def tick(self) -> None:
        self.ticked.append(self._clock())

    def next_deadline(self) -> float:
        return self.ticked[-1] + self.PERIOD

    def receive(self, peer: str, message: object) -> bool:
        return message == "work"


@pytest.mark.looptime
async def test_a_timer_is_put_off_by_each_tick(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    settings = RaftSettings(self_id="a", peers={"a": ("127.0.0.1", 1)}, secret=SECRET, store_path=tmp_path)
    replica = Replica(settings, CommandList(), clock=loop.time)
    machine = Clockwork(loop.time)
    replica._loop, replica._machine = loop, machine
    for _ in range(100):
        await asyncio.sleep(0.03)
        replica._receive("b", "work")
        replica._receive("b", "nothing to do")
    await asyncio.sleep(0.01)
    assert len(machine.ticked) == 101, "no tick but for what came in"
    await asyncio.sleep(1)
    assert len(machine.ticked) == 101 + 22, "and one for each deadline when nothing comes"
