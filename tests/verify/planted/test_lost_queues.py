"""Consume queues that were cut, emptied or deleted, in one replica of several; and those that only look so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rocketmq_commitlog import queue_files
from rocketmq_commitlog.folder import LogFolder
from rocketmq_commitlog.state import NATIVE_IDENTITY
from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.queues import QueueReason
from rocketmq_formats.soundness.rows import Batch, Columns, batches
from rocketmq_formats.store.consume_queue import pack_units
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.sources.queues import QueueResult, check_derived
from rocketmq_verify.sources.work import Place
from tests.verify.history.stores import QUEUE, TOPIC, save_all
from tests.verify.planted.faults import SEGMENT, Group

OTHER = "Other"


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    """With logs that are small beside what brokers write out of order."""
    monkeypatch.setattr(queue_files, "DISPATCH_SPAN", 0)
    return Group().fill(60)


def columns(group: Group) -> list[Columns]:
    """With every second message in another queue."""
    data = bytes(group.master.data)
    (made,) = (one.columns for one in batches(data, 0, 0, group.master.end, segment_size=SEGMENT) if one.columns.topic)
    half = [index % 2 for index in range(len(made.topic))]
    topics = [OTHER if odd else TOPIC for odd in half]
    numbers = [number // 2 for number in made.queue_offset]
    return [made._replace(topic=topics, queue_offset=numbers)]


def records(group: Group, until: int) -> list[Batch]:
    (made,) = columns(group)
    kept = sum(offset < until for offset in made.physical_offset)
    return [Batch(Columns(*(column[:kept] for column in made)), until)]


def stores(group: Group, root: Path) -> dict[str, Path]:
    """Each with both queues, of a native broker; the folders of `TOPIC` by replica."""
    save_all(group, root)
    (made,) = columns(group)
    found = {}
    for replica in group.replicas:
        store = root / replica.name
        (store / NATIVE_IDENTITY).touch()
        (store / "config" / "topics.json").write_text('{"topicConfigTable":{"Orders":{"order":false},"Other":{}}}')
        for topic in (TOPIC, OTHER):
            rows = [
                (at, size, 0)
                for name, at, size in zip(made.topic, made.physical_offset, made.size, strict=True)
                if name == topic
            ]
            folder = store / "consumequeue" / topic / str(QUEUE)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{0:020d}").write_bytes(pack_units(rows).ljust(4000, b"\0"))
        found[str(replica.name)] = store / "consumequeue" / TOPIC / str(QUEUE)
    return found


def check(group: Group, root: Path, until: int | None = None) -> dict[tuple[str, str], QueueResult]:
    until = group.master.end if until is None else until
    places = [Place(ReplicaName(one.name), f"files:{root / one.name}") for one in group.replicas]
    found = check_derived(records(group, until), Extent(0, until), places, sleep=lambda _: None)
    return {(one.replica, one.topic): one for one in found if isinstance(one, QueueResult)}


def faulty(found: dict[tuple[str, str], QueueResult]) -> dict[tuple[str, str], int]:
    for one in found.values():
        assert all(fault.reason is QueueReason.NO_UNIT for fault in one.check.faults)
    return faults_of(found)


def faults_of(found: dict[tuple[str, str], QueueResult]) -> dict[tuple[str, str], int]:
    return {key: one.check.fault_count for key, one in found.items() if one.check.fault_count}


def test_whole_queues(group: Group, tmp_path: Path) -> None:
    stores(group, tmp_path)
    found = check(group, tmp_path)
    assert faulty(found) == {}
    assert len(found) == 6


@pytest.mark.parametrize("zeros", [True, False])
def test_a_queue_that_was_cut(group: Group, tmp_path: Path, zeros: bool) -> None:
    file = stores(group, tmp_path)["b"] / f"{0:020d}"
    data = file.read_bytes()[:200]
    file.write_bytes(data.ljust(4000, b"\0") if zeros else data)
    found = check(group, tmp_path)
    assert faulty(found) == {("b", TOPIC): 20}
    assert found["b", TOPIC].check.faults[0].queue_offset == 10
    assert found["b", TOPIC].check.lag == 0


@pytest.mark.parametrize("how", ["zeros", "no files", "no folder"])
def test_a_queue_that_was_emptied(group: Group, tmp_path: Path, how: str) -> None:
    folder = stores(group, tmp_path)["c"]
    if how == "zeros":
        (folder / f"{0:020d}").write_bytes(bytes(4000))
    else:
        shutil.rmtree(folder)
        if how == "no files":
            folder.mkdir()
    assert faulty(check(group, tmp_path)) == {("c", TOPIC): 29 + (len(group.messages) > 59)}


@pytest.mark.parametrize("names", ["b", "abc"])
def test_a_folder_that_was_deleted(group: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    monkeypatch.undo()  # what is dispatched last is lost, too
    stores(group, tmp_path)
    for name in names:
        shutil.rmtree(tmp_path / name / "consumequeue")
    found = check(group, tmp_path)
    whole = len(group.messages)
    assert {name: sum(found[name, topic].check.fault_count for topic in (TOPIC, OTHER)) for name in names} == (
        dict.fromkeys(names, whole)
    )
    assert {name for name, _ in faulty(found)} == set(names)
    assert found["b", TOPIC].check.faults[0].detail == "the store has no consume queues at all"


@pytest.mark.parametrize("names", ["b", "abc"])
def test_queues_that_were_all_deleted_are_lost_where_others_have_them(group: Group, tmp_path: Path, names: str) -> None:
    stores(group, tmp_path)
    for name in names:
        for topic in (TOPIC, OTHER):
            shutil.rmtree(tmp_path / name / "consumequeue" / topic)
    assert {name for name, _ in faulty(check(group, tmp_path))} == ({"b"} if names == "b" else set())


def test_queues_in_rocksdb_are_not_judged(group: Group, tmp_path: Path) -> None:
    stores(group, tmp_path)
    (tmp_path / "b" / "consumequeue").rename(tmp_path / "b" / "consumequeue_r")
    assert faulty(check(group, tmp_path)) == {}


def test_records_with_one_number_twice_and_one_never_are_faults(group: Group, tmp_path: Path) -> None:
    """The same wrong number in all replicas: count and ends of the numbers are those of a whole queue."""
    stores(group, tmp_path)
    (made,) = columns(group)
    numbers = list(made.queue_offset)
    at = numbers.index(11)
    numbers[at] = 10
    places = [Place(ReplicaName(one.name), f"files:{tmp_path / one.name}") for one in group.replicas]
    wrong = [Batch(made._replace(queue_offset=numbers), group.master.end)]
    found = check_derived(wrong, Extent(0, group.master.end), places, sleep=lambda _: None)
    faults = {one.replica: one.check.faults for one in found if one.topic == made.topic[at]}
    for name in "abc":
        assert [(fault.queue_offset, fault.reason) for fault in faults[ReplicaName(name)]] == [
            (10, QueueReason.NO_UNIT),
            (11, QueueReason.NO_RECORD),
        ]


@pytest.mark.parametrize("number", [7 + (1 << 24), 7 + (1 << 56)])
def test_a_number_far_away_hides_no_other(group: Group, tmp_path: Path, number: int) -> None:
    """The same wrong number in all replicas."""
    stores(group, tmp_path)
    (made,) = columns(group)
    numbers = [number if index == 14 else own for index, own in enumerate(made.queue_offset)]
    wrong = [Batch(made._replace(queue_offset=numbers), group.master.end)]
    places = [Place(ReplicaName(one.name), f"files:{tmp_path / one.name}") for one in group.replicas]
    found = check_derived(wrong, Extent(0, group.master.end), places, sleep=lambda _: None)
    faults = {(one.replica, one.topic): [fault.queue_offset for fault in one.check.faults] for one in found}
    assert faults == {(name, topic): [7] if topic == TOPIC else [] for name in "abc" for topic in (TOPIC, OTHER)}


def test_a_deleted_topic_has_lost_nothing(group: Group, tmp_path: Path) -> None:
    made = stores(group, tmp_path)
    shutil.rmtree(made["a"].parent)
    (tmp_path / "a" / "config" / "topics.json").write_text('{"topicConfigTable":{"Other":{}}}')
    assert faulty(check(group, tmp_path)) == {}  # b and c do not know of it yet
    for name in "bc":
        shutil.rmtree(made[name].parent)
    (tmp_path / "a" / "config" / "topics.json").write_text('{"topicConfigTable":{"Other":{},"Orders":{}}}')
    assert faulty(check(group, tmp_path)) == {}  # created again in a


def test_a_topic_created_again_has_lost_nothing(group: Group, tmp_path: Path) -> None:
    """Its first messages are behind the extent."""
    made = stores(group, tmp_path)
    later = group.messages[-5:]
    for folder in made.values():
        units = [(message.offset, message.size, 0) for message in later]
        (folder / f"{0:020d}").write_bytes(pack_units(units).ljust(4000, b"\0"))
    assert faulty(check(group, tmp_path, until=later[0].offset)) == {}


@pytest.mark.parametrize("where", ["behind the last one", "in place of the last one"])
@pytest.mark.parametrize("offset", [900 << 20, SEGMENT + 8])
def test_units_that_lead_nowhere(group: Group, tmp_path: Path, where: str, offset: int) -> None:
    file = stores(group, tmp_path)["b"] / f"{0:020d}"
    until = group.messages[40].offset
    assert faulty(check(group, tmp_path, until=until)) == {}
    (made,) = columns(group)
    rows = zip(made.topic, made.queue_offset, made.physical_offset, strict=True)
    number = sum(topic == TOPIC and at < until for topic, _, at in rows) - (where != "behind the last one")
    target = offset if offset > until else group.messages[50].offset + 8
    data = file.read_bytes()[: number * 20] + pack_units([(target, 500, 0)])
    file.write_bytes(data.ljust(4000, b"\0"))
    found = check(group, tmp_path, until=until)
    (fault,) = found["b", TOPIC].check.faults
    assert (fault.queue_offset, fault.physical_offset, fault.reason) == (number, target, QueueReason.NO_RECORD)
    assert {key for key, one in found.items() if one.check.fault_count} == {("b", TOPIC)}


def test_java_leaves_old_units_behind_a_cut(group: Group, tmp_path: Path) -> None:
    file = stores(group, tmp_path)["b"] / f"{0:020d}"
    (made,) = columns(group)
    number = made.topic.count(TOPIC)
    data = file.read_bytes()[: number * 20] + pack_units([(900 << 20, 500, 0)] * 2)
    file.write_bytes(data.ljust(4000, b"\0"))
    assert faults_of(check(group, tmp_path)) == {("b", TOPIC): 1}
    (tmp_path / "b" / NATIVE_IDENTITY).unlink()
    found = check(group, tmp_path)
    assert faults_of(found) == {}
    assert found["b", TOPIC].check.units == found["a", TOPIC].check.units


def test_a_log_is_listed_once_for_all_its_queues(group: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stores(group, tmp_path)
    listed: list[Path] = []

    class Counted(LogFolder):
        def refresh(self) -> None:
            listed.append(self.path)
            super().refresh()

    monkeypatch.setattr(queue_files, "LogFolder", Counted)
    assert faulty(check(group, tmp_path, until=group.messages[40].offset)) == {}
    assert sorted(listed) == [tmp_path / name / "commitlog" for name in "abc"]


def test_what_is_not_dispatched_yet_is_late(group: Group, tmp_path: Path) -> None:
    made = stores(group, tmp_path)
    for topic in (TOPIC, OTHER):
        file = made["b"].parent.parent / topic / str(QUEUE) / f"{0:020d}"
        file.write_bytes(file.read_bytes()[:200].ljust(4000, b"\0"))
    found = check(group, tmp_path)
    assert faulty(found) == {}
    assert found["b", TOPIC].check.lag + found["b", OTHER].check.lag == len(group.messages) - 20


def test_what_a_broker_that_died_had_not_written_yet_is_late(
    group: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes queue by queue."""
    file = stores(group, tmp_path)["b"] / f"{0:020d}"
    file.write_bytes(file.read_bytes()[:200].ljust(4000, b"\0"))
    (made,) = columns(group)
    before = made.physical_offset[-1] - made.physical_offset[20]
    monkeypatch.setattr(queue_files, "DISPATCH_SPAN", before + 1)
    found = check(group, tmp_path)
    assert faulty(found) == {}
    assert found["b", TOPIC].check.lag == 20
    monkeypatch.setattr(queue_files, "DISPATCH_SPAN", before - 1000)
    assert faulty(check(group, tmp_path)) == {("b", TOPIC): 1}


def test_what_expired_in_one_replica_has_lost_nothing(group: Group, tmp_path: Path) -> None:
    """Its log and its queues begin later than the log that is read."""
    made = stores(group, tmp_path)
    (tmp_path / "b" / "commitlog" / f"{0:020d}").unlink()
    (rows,) = columns(group)
    places = zip(rows.topic, rows.queue_offset, rows.physical_offset, strict=True)
    for topic, first, _ in [next(one for one in places if one[2] >= SEGMENT), next(places)]:
        file = made["b"].parent.parent / topic / str(QUEUE) / f"{0:020d}"
        kept = file.read_bytes()[first * 20 :]
        file.unlink()
        file.with_name(f"{first * 20:020d}").write_bytes(kept)
    found = check(group, tmp_path)
    assert faulty(found) == {}
    assert 0 < found["b", TOPIC].check.units < found["a", TOPIC].check.units


def test_what_expires_while_it_is_checked_has_lost_nothing(group: Group, tmp_path: Path) -> None:
    made = stores(group, tmp_path)
    file = made["b"] / f"{0:020d}"
    file.write_bytes(bytes(40) + file.read_bytes()[40:])
    assert faulty(check(group, tmp_path)) == {("b", TOPIC): 2}
    looks = 0

    def sleep(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == queue_files.ATTEMPTS - 1:
            (tmp_path / "b" / "commitlog" / f"{0:020d}").unlink()

    places = [Place(ReplicaName(one.name), f"files:{tmp_path / one.name}") for one in group.replicas]
    found = check_derived(records(group, group.master.end), Extent(0, group.master.end), places, sleep=sleep)
    assert looks == queue_files.ATTEMPTS - 1, "pauses are for all queues together"
    assert faulty({(one.replica, one.topic): one for one in found}) == {}
