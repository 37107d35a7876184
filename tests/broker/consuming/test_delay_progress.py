"""How far delayed messages are delivered, whatever happens to the log and whichever replica becomes master: none is
skipped (NothingGoesBack, AckedSurvives), none is early, and few are delivered twice."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rocketmq_broker.consuming.delay_service import DelayService
from rocketmq_broker.consuming.level_ages import LevelAges
from rocketmq_broker.domain.consuming.delay_history import DeliveryHistory
from rocketmq_broker.domain.role import Durability, ReplicaRole
from rocketmq_broker.sending.inner_writer import InnerWriter
from rocketmq_broker.tables.consumer_tables import DelayOffsets
from rocketmq_broker.traffic import Traffic
from rocketmq_formats.replica_link import Following, Hello, Release, Released, Replication, Truncate, Truncated, Welcome
from rocketmq_formats.store.config_files import DelayOffsetsFile, decode_config, decode_history
from rocketmq_formats.store.message import read_records
from rocketmq_formats.store.message_properties import format_properties
from rocketmq_formats.topics import SCHEDULE_TOPIC
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import Draft, StoreSettings
from tests.broker.broker_kit import Group, running
from tests.store.kit import dispatched

QUICK = "1s 1s 10s"


async def send_delayed(group: Group, body: bytes, level: int = 1) -> None:
    properties = f"UNIQ_KEY\x01{body.decode()}\x02DELAY\x01{level}\x02"
    assert (await group.send(body, properties=properties)).code == 0


async def delivered(group: Group, count: int) -> list[bytes]:
    """The first `count` bodies of topic T."""
    bodies: list[bytes] = []
    while len(bodies) < count:
        answer = await group.pull(len(bodies), suspend_ms=15_000)
        assert answer.code == 0, answer.remark
        bodies += [bytes(record.body(answer.body)) for record in read_records(answer.body, check_crc=True)]
    return bodies


def table_on_disk(root: Path) -> DelayOffsetsFile:
    return decode_config(DelayOffsetsFile, (root / "config" / "delayOffset.json").read_bytes())


async def cut_as_slave(group: Group, offset: int, epoch: int) -> None:
    """What the sidecar does when the log is to be cut: first the broker forgets, then the bytes go."""
    group.sidecar.send(Release())
    await group.sidecar.receive(Released)
    group.sidecar.send(Following(epoch, 2, "127.0.0.1:1"))
    group.sidecar.send(Truncate(offset))
    assert (await group.sidecar.receive(Truncated)).offset == offset


def cut_log(group: Group, offset: int) -> None:
    store = group.app.store
    store.writer.acquire()
    store.files.refresh()
    store.files.truncate(offset)
    store.writer.release()


async def test_messages_whose_delivery_was_cut_off_are_delivered_again(tmp_path: Path) -> None:
    # Relaxed: a master alone delivered what another master did not have.
    async with running(tmp_path, messageDelayLevel=QUICK) as group:
        for number in range(3):
            await send_delayed(group, b"%d" % number)
        cut = group.app.store.max_offset
        assert await delivered(group, 3) == [b"0", b"1", b"2"]
        group.app.tables.settle_delays()
        assert group.app.tables.delays.table == {1: 3}
        await cut_as_slave(group, cut, epoch=2)
        assert table_on_disk(tmp_path).offset_table.get(1, 0) == 0, "before the log is cut, durably"
        cut_log(group, cut)
        await group.sidecar.make_master(3, hello=False)
        assert await delivered(group, 3) == [b"0", b"1", b"2"]


async def test_a_message_whose_unit_is_damaged_is_searched_and_not_passed_over(tmp_path: Path) -> None:
    async with running(tmp_path, messageDelayLevel=QUICK, logCheckBytesPerSecond=0) as group:
        await send_delayed(group, b"0")
        path = tmp_path / "consumequeue" / SCHEDULE_TOPIC / "0" / f"{0:020}"
        content = path.read_bytes()
        await group.send(b"1")
        with path.open("r+b") as file:
            file.write((1).to_bytes(8, "big"))
        assert await delivered(group, 2) == [b"1", b"0"]
        assert path.read_bytes() == content


async def test_messages_that_came_in_the_place_of_delivered_ones_are_delivered(tmp_path: Path) -> None:
    async with running(tmp_path, messageDelayLevel=QUICK) as group:
        await group.send(b"first")
        cut = group.app.store.max_offset
        for number in range(3):
            await send_delayed(group, b"lost %d" % number)
        await delivered(group, 4)
        await cut_as_slave(group, cut, epoch=2)
        cut_log(group, cut)
        await group.sidecar.make_master(3, hello=False)
        await send_delayed(group, b"another")
        assert await delivered(group, 2) == [b"first", b"another"]


async def test_after_the_death_of_all_nothing_delivered_comes_twice(tmp_path: Path) -> None:
    # kill -9: the table on disk is as old as it may be.
    async with running(tmp_path / "before", messageDelayLevel=QUICK) as group:
        for number in range(5):
            await send_delayed(group, b"%d" % number, level=1 + number % 2)
        first = await delivered(group, 5)
        assert not (tmp_path / "before" / "config" / "delayOffset.json").exists()
        ignored = shutil.ignore_patterns("*.sock", "*.lock", "lock", "*.tmp")
        shutil.copytree(tmp_path / "before", tmp_path / "after", ignore=ignored)
    async with running(tmp_path / "after", messageDelayLevel=QUICK) as group:
        await send_delayed(group, b"later", level=1)
        await send_delayed(group, b"later", level=2)
        assert await delivered(group, 7) == [*first, b"later", b"later"]
        group.app.tables.settle_delays()
        assert group.app.tables.delays.table == {1: 4, 2: 3}


async def test_a_message_that_resembles_a_delivery_does_not_count(tmp_path: Path) -> None:
    async with running(tmp_path / "before", messageDelayLevel="1s 10s") as group:
        await send_delayed(group, b"0", level=2)
        # what a consumer's client forwards keeps its properties, and one may make up what it likes
        for properties in ("UNIQ_KEY\x010\x02DELAY\x01-2\x02", "UNIQ_KEY\x010\x02XDELAY\x012\x02"):
            assert (await group.send(b"0", properties=properties)).code == 0
        assert group.app.store.next_queue_offset(SCHEDULE_TOPIC, 1) == 1
        ignored = shutil.ignore_patterns("*.sock", "*.lock", "lock", "*.tmp")
        shutil.copytree(tmp_path / "before", tmp_path / "after", ignore=ignored)
    async with running(tmp_path / "after", messageDelayLevel="1s 10s") as group:
        await send_delayed(group, b"later", level=1)
        await delivered(group, 3)
        group.app.tables.settle_delays()
        assert group.app.tables.delays.table == {1: 1}


async def test_a_slave_takes_over_lower_offsets_and_older_states(tmp_path: Path) -> None:
    async with (
        running(tmp_path / "master", messageDelayLevel=QUICK) as master,
        running(tmp_path / "slave", master=False) as slave,
    ):
        await send_delayed(master, b"x")
        await delivered(master, 1)
        ours = slave.app.tables.delays
        ours.replace([(0, {1: 100})], ours.version)
        await slave.sidecar.receive(Hello)
        slave.sidecar.send(Welcome(2))
        slave.sidecar.send(Following(1, 1, master.address))
        while ours.table != {1: 1}:
            await asyncio.sleep(0.01)
        assert ours.history == master.app.tables.delays.history
    file = table_on_disk(tmp_path / "slave")
    assert file.offset_table == {1: 1}
    assert file.history is not None
    assert decode_history(file.history).keys() == {place for place, _ in ours.history}


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=200), st.integers(0, 10**10))
def test_a_cut_leaves_a_state_that_the_log_still_has(steps: list[int], end: int) -> None:
    history, place, places = DeliveryHistory(), 0, []
    for count, step in enumerate(steps):
        place += step
        history.record(place, {1: count})
        places.append(place)
    kept = [state[0] for state in history.states]
    assert kept == sorted(set(kept))
    assert len(kept) <= 20
    assert (kept[0], kept[-1]) == (places[0], places[-1])
    assert all(levels == {1: places.index(at)} for at, levels in history.states)
    best = max((at for at in kept if at <= end), default=None)
    history.cut(end)
    assert history.newest == ((end, {1: 0}) if best is None else (best, {1: places.index(best)}))
    assert history.at(end) == history.newest


def test_states_are_kept_at_every_distance() -> None:
    history = DeliveryHistory()
    for count in range(1, 20_000):
        history.record(count << 20, {1: count})
    distances = [(history.newest[0] - place) >> 20 for place, _ in history.states]
    for cut in (1, 10, 100, 1000, 10_000):
        nearest = min(distance for distance in distances if distance >= cut)
        assert nearest <= 64 * cut, "a search is bounded by what is cut"


class Replica:
    """A delay service beside its store, whose wall clock is `ahead` ms ahead of its master's."""

    def __init__(self, root: Path, ahead: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.store = MessageStore(StoreSettings(root=root, file_size=1 << 20, consume_queue_file_size=20 * 1000))
        self.store.writer.acquire()
        self.store.open()
        self.store.cut_tail()
        self.role = ReplicaRole(Durability(copies_needed=1, strict=False))
        traffic = Traffic()
        writer = InnerWriter(
            role=self.role, store=self.store, store_host=bytes(8), traffic=traffic, on_appended=_nothing
        )
        self.ahead = ahead
        self.ages = LevelAges(levels=(1000, 5000, 10_000), role=self.role, store=self.store)
        self.delays = DelayService(
            ages=self.ages,
            role=self.role,
            store=self.store,
            writer=writer,
            delays=DelayOffsets(),
            counts=traffic.counts,
            clock=lambda: self.masters() + self.ahead,
        )

    def masters(self) -> int:
        """What the first master's wall clock says."""
        return 1_000_000 + int(self.loop.time() * 1000)

    def arrives(self, stored_ago: int = 0) -> None:
        """A message of level 3 is replicated and confirmed."""
        properties = format_properties({"DELAY": "3", "REAL_TOPIC": "T", "REAL_QID": "0"})
        draft = Draft(topic=SCHEDULE_TOPIC.encode(), queue_id=2, body=b"x", properties=properties)
        self.store.append(draft, self.masters() - stored_ago)
        self.delays.on_visible(dispatched(self.store))

    def lead(self) -> None:
        self.role.prepare(2)
        self.delays.on_role_change()
        self.role.grant(2, 1e12)
        self.role.replicated(Replication(2, 0, 0, 3))
        self.delays.on_role_change()

    def follow(self, address: str) -> None:
        self.role.follow(1, address)
        self.delays.on_role_change()

    async def sleeps(self) -> float:
        """Seconds until the first message of level 3 is due."""
        while not isinstance(timer := self.delays._timers.get(3), asyncio.TimerHandle) or timer.when() <= (
            now := self.loop.time()
        ):
            await asyncio.sleep(0)
        return timer.when() - now


def _nothing() -> None:
    pass


async def due(root: Path, ahead: int, prepare: Callable[[Replica], None]) -> float:
    replica = Replica(root, ahead)
    prepare(replica)
    replica.lead()
    seconds = await replica.sleeps()
    replica.delays.stop()
    replica.store.close()
    return seconds


async def test_a_new_master_whose_clock_is_wrong_delivers_in_time(tmp_path: Path) -> None:
    def live(replica: Replica) -> None:
        replica.follow("m:1")
        replica.arrives()

    def in_the_log_already(replica: Replica) -> None:
        replica.arrives(stored_ago=4000)
        replica.follow("m:1")
        replica.ages.merge({3: [(0, 9000), (1, 4000)]})

    def after_a_word_that_came_before_it(replica: Replica) -> None:
        replica.follow("m:1")
        replica.ages.merge({3: [(0, 9000), (1, 4000)]})
        replica.arrives(stored_ago=4000)

    def in_place_of_one_that_the_master_before_had(replica: Replica) -> None:
        replica.follow("m:1")
        replica.ages.merge({3: [(0, 9000), (1, 4000)]})
        replica.follow("m:2")
        replica.arrives()

    for number, ahead in enumerate((8000, -8000, 0)):
        for prepare, expected in (
            (live, 10),
            (in_the_log_already, 6),
            (after_a_word_that_came_before_it, 6),
            (in_place_of_one_that_the_master_before_had, 10),
        ):
            seconds = await due(tmp_path / f"{number}{prepare.__name__}", ahead, prepare)
            assert expected - 1 < seconds <= expected, (prepare.__name__, ahead)


async def test_after_the_death_of_all_the_wall_clock_decides(tmp_path: Path) -> None:
    def found(replica: Replica) -> None:
        replica.arrives(stored_ago=4000)

    assert 5 < await due(tmp_path, 0, found) <= 6


async def test_a_slave_that_has_just_begun_delivers_when_its_master_would_have(tmp_path: Path) -> None:
    # The master's clock was 8 s behind when it stored the message, and is right again: the slave cannot know that.
    async with running(tmp_path / "master", messageDelayLevel="1s 1s 30s") as master:
        await send_delayed(master, b"x", level=3)
        await asyncio.sleep(0.2)
        async with running(tmp_path / "slave", master=False) as slave:
            told: list[tuple[int, int]] = []
            ours = slave.app.services._ages
            await slave.sidecar.receive(Hello)
            slave.sidecar.send(Welcome(2))
            slave.sidecar.send(Following(1, 1, master.address))
            while not told:
                await asyncio.sleep(0.01)
                told = [pair for pair in ours.of_levels().get(3, ()) if pair[0] == 1]
            assert told[0][1] >= 150


async def test_what_was_under_way_when_the_master_died_is_not_early_either(tmp_path: Path) -> None:
    replica = Replica(tmp_path, 8000)
    replica.follow("m:1")
    properties = format_properties({"DELAY": "3", "REAL_TOPIC": "T", "REAL_QID": "0"})
    draft = Draft(topic=SCHEDULE_TOPIC.encode(), queue_id=2, body=b"x", properties=properties)
    replica.store.append(draft, replica.masters())
    replica.lead()  # before it is confirmed
    replica.delays.on_visible(dispatched(replica.store))
    assert 9 < await replica.sleeps() <= 10
    replica.delays.stop()
    replica.store.close()
