"""A slave copies offsets in parts while they change: what is confirmed is at the slave (NothingGoesBack)."""

import asyncio
import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from rocketmq_broker.domain.tables import change_order
from rocketmq_broker.domain.tables.change_order import Changed
from rocketmq_broker.domain.tables.offsets import ConsumerOffsets
from rocketmq_broker.domain.tables.part_copies import PartCopy
from rocketmq_broker.domain.tables.subscription_groups import SubscriptionGroups
from rocketmq_broker.domain.tables.topics import TopicTable
from rocketmq_broker.tables import table_copies
from rocketmq_broker.tables.changes_body import group_changes_body, topic_changes_body
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.client import UpdateConsumerOffsetRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.replica_link import Following, Hello, Welcome
from rocketmq_formats.steps import finish
from rocketmq_formats.store.config_files import decode_config
from rocketmq_formats.table_copies import (
    NOTHING,
    ConsumerOffsetChanges,
    CopyTablesRequestHeader,
    CopyTablesResponseHeader,
    GroupChanges,
    TopicChanges,
    split_tables,
)
from rocketmq_formats.topics import DataVersion, SubscriptionGroupConfig, TopicConfig
from tests.broker.broker_kit import Group, running
from tests.topic_requests import topic_request

QUEUE = 0


class World:
    """A master, a slave, and every change with its number."""

    def __init__(self, chance: random.Random, most: int) -> None:
        self.chance = chance
        self.most = most
        self.master = ConsumerOffsets()
        self.progress = PartCopy()
        self.confirmed = NOTHING
        self.changes: list[tuple[int, str, str, int | None]] = []
        """Number, topic, group, and the offset, which only grows; None: removed."""
        self.offset = 0
        self._restart()

    def _restart(self) -> None:
        self.slave, self.at = ConsumerOffsets(), NOTHING

    def step(self) -> None:
        kind = self.chance.choices(("commit", "remove", "copy", "lose", "late", "restart"), (60, 3, 15, 3, 3, 1))[0]
        if kind == "commit":
            self.commit(f"T{self.chance.randrange(3)}", f"G{self.chance.randrange(12)}")
        elif kind == "remove":
            group = f"G{self.chance.randrange(12)}"
            topics = self.master.topics_of(group)
            self.master.remove(groups={group})
            self.changes += [(self.master.changes, topic, group, None) for topic in topics]
        elif kind == "restart":
            self._restart()
        elif kind == "late":
            self._part()  # for a request that waits, and whose sender has gone
        else:
            self.copy(arrives=kind == "copy")

    def commit(self, topic: str, group: str) -> None:
        self.offset += 1
        assert self.master.commit(group, topic, QUEUE, self.offset)
        self.changes.append((self.master.changes, topic, group, self.offset))

    def copy(self, *, arrives: bool) -> None:
        master = self.master
        self.confirmed = self.progress.reported(self.at, master.changes)
        self.check()
        if self.at == master.changes:
            return
        part = self._part()
        if arrives:
            table = _table(master, part.keys)
            ends = part.until == master.changes
            finish(self.slave.take_changes(table, part.removed, begins=part.begins, ends=ends))
            self.at = part.until

    def _part(self) -> Changed:
        master = self.master
        part = master.changed_since(self.at, self.most, begun=self.progress.begun(self.at))
        self.progress.sent(self.at, part.until, master.changes, begins=part.begins, floor=master.floor)
        return part

    def check(self) -> None:
        last = {
            (topic, group): (number, offset)
            for number, topic, group, offset in self.changes
            if number <= self.confirmed
        }
        for (topic, group), (number, offset) in last.items():
            found = self.slave.find(group, topic, QUEUE)
            later = [change[3] for change in self.changes if change[0] > number and change[1:3] == (topic, group)]
            if found is None:
                assert offset is None or None in later, f"{number} is confirmed, and the slave lacks {topic}@{group}"
            else:
                assert found == offset or found in later, f"{number} is confirmed, and {topic}@{group} is at {found}"


def _table(master: ConsumerOffsets, keys: Iterable[str]) -> dict[str, dict[int, int]]:
    table = {}
    for key in keys:
        topic, _, group = key.partition("@")
        offset = master.find(group, topic, QUEUE)
        assert offset is not None
        table[key] = {QUEUE: offset}
    return table


@pytest.mark.parametrize("most", [1, 2, 5, 20])
@pytest.mark.parametrize("max_removed", [1, 1000])
def test_what_is_confirmed_is_at_the_slave(monkeypatch: pytest.MonkeyPatch, most: int, max_removed: int) -> None:
    monkeypatch.setattr(change_order, "MAX_REMOVED", max_removed)
    for seed in range(25):
        world = World(random.Random(seed), most)
        for _ in range(150):
            world.step()
        for _ in range(100):
            world.copy(arrives=True)
        assert world.confirmed == world.at == world.master.changes, "nothing is waited for in vain"
        assert finish(world.slave.texts()) == finish(world.master.texts())


def test_a_key_that_moves_to_a_later_part_takes_its_confirmation_along() -> None:
    world = World(random.Random(0), most=1)
    world.commit("T", "moves")
    first = world.master.changes
    world.commit("T", "stays")
    world.commit("T", "moves")
    world.copy(arrives=True)
    world.copy(arrives=True)
    assert world.at > first > world.confirmed
    world.copy(arrives=True)
    assert world.confirmed == world.master.changes


def test_under_steady_changes_each_complete_part_is_confirmed() -> None:
    world = World(random.Random(0), most=5)
    for number in range(20):
        world.commit("T", f"G{number % 3}")
        world.copy(arrives=True)
        world.commit("T", f"G{number % 2}")  # while the part is on its way
        assert world.at > NOTHING
    world.copy(arrives=True)
    assert world.confirmed == world.master.changes - 1


class Topics(TopicTable):
    def __init__(self) -> None:
        super().__init__(cluster="C", broker_name="B", auto_create=False, default_queue_nums=1)

    def change(self, name: str, value: int) -> None:
        self.put(TopicConfig(topic_name=name, read_queue_nums=value), state_version=1, now_ms=value)

    def drop(self, name: str) -> None:
        self.delete(name, state_version=1, now_ms=1)

    def content(self) -> object:
        return self.table, self.version

    def body(self, changed: Changed) -> bytes:
        return topic_changes_body(self, changed)

    def take(self, body: bytes) -> None:
        news = decode_body(TopicChanges, body)
        table = news.topic_config_table
        self.take_changes(news.data_version, table, news.removed, begins=news.full, ends=not news.more)


class Groups(SubscriptionGroups):
    def __init__(self) -> None:
        super().__init__(
            auto_create=False,
            allow_long_names=False,
            may_change=lambda: True,
            state_version=lambda: 1,
            now_ms=lambda: 1,
        )

    def change(self, name: str, value: int) -> None:
        if value % 5 == 0:
            self.forget_topic("T")
        self.put(SubscriptionGroupConfig(group_name=name, retry_max_times=value))

    def drop(self, name: str) -> None:
        self.delete(name)

    def content(self) -> object:
        return self.table, self.forbidden, self.version

    def body(self, changed: Changed) -> bytes:
        return group_changes_body(self, changed)

    def take(self, body: bytes) -> None:
        news = decode_body(GroupChanges, body)
        table, forbidden = news.subscription_group_table, news.forbidden_table
        self.take_changes(news.data_version, table, forbidden, news.removed, begins=news.full, ends=not news.more)


def _groups() -> Groups:
    """Loaded from a file with what is forbidden."""
    groups = Groups()
    names = [f"N{number}" for number in range(0, 9, 2)]
    table = {name: SubscriptionGroupConfig(group_name=name) for name in names}
    groups.load(DataVersion(counter=5), table, {name: {"T": 1, "U": 2} for name in names} | {"only": {"T": 1}})
    return groups


@pytest.mark.parametrize("make", [Topics, _groups])
@pytest.mark.parametrize("most", [1, 2, 5, 20])
@pytest.mark.parametrize("max_removed", [1, 1000])
def test_topics_and_groups_that_are_confirmed_are_at_the_slave(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], Topics | Groups], most: int, max_removed: int
) -> None:
    monkeypatch.setattr(change_order, "MAX_REMOVED", max_removed)
    for seed in range(20):
        chance = random.Random(seed)
        master, slave, progress = make(), _other(make), PartCopy()
        at = confirmed = NOTHING
        for step in range(150):
            if step < 120:
                kind = chance.choices(("change", "drop", "copy", "lose", "restart"), (60, 10, 25, 3, 1))[0]
            else:
                kind = "copy"
            name = f"N{chance.randrange(9)}"
            if kind == "change":
                master.change(name, step)
            elif kind == "drop":
                master.drop(name)
            elif kind == "restart":
                slave, at = _other(make), NOTHING
            else:
                before, confirmed = slave.version, progress.reported(at, master.order.changes)
                if at == master.order.changes:
                    assert slave.content() == master.content()
                    continue
                changed = master.order.since(at, most, begun=progress.begun(at))
                begins, floor = changed.begins, master.order.floor
                progress.sent(at, changed.until, master.order.changes, begins=begins, floor=floor)
                if kind == "copy":
                    slave.take(master.body(changed))
                    at = changed.until
                    assert slave.version == (master.version if at == master.order.changes else before)
        assert confirmed == at == master.order.changes, "nothing is waited for in vain"
        assert slave.content() == master.content()


def _other(make: Callable[[], Topics | Groups]) -> Topics | Groups:
    """A slave's, which has what its master lacks."""
    slave = make()
    slave.change("here", 7)
    return slave


@pytest.mark.parametrize("kind", ["topics", "groups"])
async def test_a_slave_copies_topics_and_groups_in_parts_and_then_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(table_copies, "PART", 10)
    counts: list[int] = []
    for name in ("topic_changes_body", "group_changes_body"):
        real = getattr(table_copies, name)

        def body(table: object, changed: Changed, real: Callable[..., bytes] = real) -> bytes:
            counts.append(len(changed.keys))
            return real(table, changed)

        monkeypatch.setattr(table_copies, name, body)
    async with running(tmp_path / "1") as master, running(tmp_path / "2", master=False) as slave:
        await _in_sync(master, 1)
        topics, groups = master.app.topics, master.app.tables.groups
        for number in range(55):
            if kind == "topics":
                topics.create_plain(f"N{number}", 1, state_version=1, now_ms=number)
            else:
                groups.put(SubscriptionGroupConfig(group_name=f"N{number}"))
        await _in_sync(master, 1, 2)
        await slave.sidecar.receive(Hello)
        slave.sidecar.send(Welcome(2))
        slave.sidecar.send(Following(1, 1, master.address))
        body = encode_body(SubscriptionGroupConfig(group_name="more"))
        assert (await master.call(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body))).code == 0
        assert (await master.call(topic_request("more"))).code == 0
        assert 10 in counts
        assert max(counts) <= 11
        assert slave.app.topics.version == topics.version
        assert slave.app.topics.table == topics.table
        assert slave.app.tables.groups.version == groups.version
        assert slave.app.tables.groups.table == groups.table
        assert {entry.name for entry in (tmp_path / "2" / "config").iterdir()} >= {"topics.json"}
        counts.clear()
        assert (await master.call(topic_request("last"))).code == 0
        assert counts == [1]


async def test_a_commit_whose_key_moved_is_not_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slave is at a later change than the commit, and has no offset of its group."""
    monkeypatch.setattr(table_copies, "PART", 2)
    monkeypatch.setattr(table_copies, "LONG_POLL_SECONDS", 0)
    async with running(tmp_path) as master:
        await _in_sync(master, 1)
        assert (await master.call(topic_request())).code == 0
        await _in_sync(master, 1, 2)
        offsets = master.app.tables.offsets
        news = CopyTablesResponseHeader("", NOTHING, NOTHING, NOTHING, 0, 0, 0, 0)
        copied: dict[str, dict[int, int]] = {}

        async def copy() -> bool:
            """Whether the commit has an answer."""
            nonlocal news
            header = CopyTablesRequestHeader(2, news.token, news.topics, news.groups, news.offsets, parts=True, epoch=1)
            answer = await master.call(request(RequestCode.COPY_TABLES, header))
            answered = commit.done()
            assert answer.code == 0, answer.remark
            news = decode_header(CopyTablesResponseHeader, answer.ext_fields or {})
            changes = split_tables(news, answer.body).offsets
            copied.update(decode_config(ConsumerOffsetChanges, changes).offset_table if changes else {})
            return answered

        commit = asyncio.ensure_future(master.call(_commit()))
        while offsets.find("G", "T", QUEUE) is None:
            await asyncio.sleep(0)
        number = offsets.changes
        for other in range(5):
            offsets.commit(f"Other{other}", "T", QUEUE, 1)
        offsets.commit("G", "T", QUEUE, 8)
        while not await copy():
            pass
        assert copied["T@G"] == {QUEUE: 8}, f"the slave is at {news.offsets}, the commit was {number}"
        assert (await commit).code == 0


async def _in_sync(master: Group, *members: int) -> None:
    master.sidecar.members = frozenset(members)
    master.sidecar.acknowledge(master.app.store.max_offset)
    while master.app.role.members != frozenset(members):
        await asyncio.sleep(0)


def _commit() -> RemotingCommand:
    header = UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=QUEUE, commit_offset=7)
    return request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
