"""What a task of Spark does, without Spark."""

import threading
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from rocketmq_formats.soundness import rows as record_rows
from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.queue_states import QueueState
from rocketmq_formats.soundness.queues import QueueCheck
from rocketmq_formats.soundness.structure import Structure, join
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.domain.planning.lineage import lineage
from rocketmq_verify.engine import task_rows
from rocketmq_verify.engine.batches import SCHEMAS, read
from rocketmq_verify.sources import file_source
from rocketmq_verify.sources.open_source import open_source
from rocketmq_verify.sources.queues import Derived
from rocketmq_verify.sources.sidecar_source import SidecarSource
from rocketmq_verify.sources.source import SourceError, SourceOptions
from rocketmq_verify.sources.work import Content, Place, Work, everything, tasks
from tests.verify.history.stores import QUEUE, TOPIC, save_all
from tests.verify.planted.faults import CHUNK, SEGMENT, Group


def work(places: tuple[Place, ...], **changes: object) -> Work:
    logs = [open_source(place.name, place.spec).describe() for place in places]
    known = lineage(logs)
    return Work.of(everything(known, chunk_size=CHUNK), known, SourceOptions(), queues_of=places, **changes)


def table(places: tuple[Place, ...], content: Content, of: Work) -> pa.Table:
    found = [batch for task in tasks(places, content, of) for batch in read(task)]
    assert all(batch.schema == SCHEMAS[content] for batch in found)
    return pa.Table.from_batches(found, schema=SCHEMAS[content])


@pytest.fixture
def group() -> Group:
    return Group().fill()


@pytest.fixture
def places(group: Group, tmp_path: Path) -> tuple[Place, ...]:
    return save_all(group, tmp_path)


@pytest.mark.parametrize("per_task", [1 << 30, 3 * CHUNK])
def test_digests_of_all_chunks(group: Group, places: tuple[Place, ...], per_task: int) -> None:
    found = table(places, Content.DIGESTS, work(places, per_task=per_task)).to_pylist()
    end = group.master.confirm
    for name in "abc":
        own = sorted((row["offset"], row["length"]) for row in found if row["replica"] == name)
        assert sum(length for _, length in own) == end
        assert [offset for offset, _ in own] == list(range(0, end, CHUNK))
    assert {row["epoch"] for row in found} == {1}
    assert {row["segment"] for row in found} == set(range(0, end, SEGMENT))
    assert len({row["digest"] for row in found}) == len(found) // 3


def test_records_in_columns(group: Group, places: tuple[Place, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_rows, "BLOCK", 1500)
    found = table(places[:1], Content.RECORDS, work(places, per_task=3 * CHUNK)).to_pylist()
    confirmed = [message for message in group.messages if message.end <= group.master.confirm]
    assert [row["physicalOffset"] for row in found] == [message.offset for message in confirmed]
    assert [row["queueOffset"] for row in found] == [message.queue_offset for message in confirmed]
    assert {(row["topic"], row["queueId"], row["crcOk"]) for row in found} == {(TOPIC, QUEUE, True)}


@pytest.mark.parametrize("per_task", [1 << 30, 2 * CHUNK])
def test_structure_in_parts(group: Group, places: tuple[Place, ...], per_task: int) -> None:
    rows = table(places[1:2], Content.STRUCTURE, work(places, per_task=per_task)).to_pylist()
    found = join(msgspec.json.decode(row["structure"], type=Structure) for row in rows)
    assert found.fault_count == 0
    assert found.extent == Extent(0, group.master.confirm)
    assert found.records == len([message for message in group.messages if message.end <= group.master.confirm])


def test_queues_of_all_replicas(group: Group, places: tuple[Place, ...]) -> None:
    rows = table(places[:1], Content.QUEUES, work(places)).to_pylist()
    confirmed = len([message for message in group.messages if message.end <= group.master.confirm])
    assert [(row["replica"], row["units"], row["faults"]) for row in rows] == [(name, confirmed, 0) for name in "abc"]


def test_sidecars_check_their_queues_at_the_same_time(
    places: tuple[Place, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reads its log at the limited rate; one of them fails."""
    together = threading.Barrier(len(places), timeout=60)

    def checked(sidecar: SidecarSource, extent: Extent, _: Work) -> Derived:
        together.wait()
        if sidecar.name == "b":
            raise SourceError(sidecar.name, "gone")
        check = QueueCheck(units=extent.length, lag=0)
        return Derived((QueueState(topic=TOPIC, queue_id=QUEUE, check=check, dispatched=1),), None)

    monkeypatch.setattr(task_rows, "_remote", checked)
    remote = tuple(Place(ReplicaName(place.name), "sidecar:127.0.0.1:1") for place in places)
    of = msgspec.structs.replace(work(places), queues_of=remote)
    rows = table(places[:1], Content.QUEUES, of).to_pylist()
    assert [row["error"] for row in rows if row["error"]] == ["gone"]
    assert {row["replica"] for row in rows if row["units"]} == {"a", "c"}


def test_queues_are_checked_up_to_the_record_in_which_a_log_ends(
    group: Group, places: tuple[Place, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slave that copies may have a part of its last record, when others have its unit already."""
    monkeypatch.setattr(record_rows, "BLOCK", 1500)
    of = work(places)
    ends = {end for message in group.messages for end in (message.offset + 1, message.end - 1, message.end)}
    for end in sorted(end for end in ends if end <= group.master.confirm):
        zones = tuple(msgspec.structs.replace(zone, extent=Extent(0, end)) for zone in of.zones)
        rows = table(places[:1], Content.QUEUES, msgspec.structs.replace(of, zones=zones)).to_pylist()
        whole = len([message for message in group.messages if message.end <= end])
        assert [(row["replica"], row["units"], row["faults"]) for row in rows] == [
            (name, whole, 0) for name in "abc" if whole
        ]


def test_queues_are_not_judged_by_a_log_that_expired_meanwhile(
    group: Group, places: tuple[Place, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_rows, "BLOCK", 1500)
    monkeypatch.setattr(file_source, "STREAMED", 1024)
    of = work(places)
    (tmp_path / "a" / "commitlog" / f"{SEGMENT:020d}").unlink()
    rows = table(places[:1], Content.QUEUES, of).to_pylist()
    assert sum(row["faults"] for row in rows) == 0


def test_a_replica_that_vanished_makes_an_error_row(group: Group, places: tuple[Place, ...], tmp_path: Path) -> None:
    of = work(places)
    (tmp_path / "b" / "commitlog").rename(tmp_path / "elsewhere")
    for content in Content:
        (row,) = table(places[1:2], content, of).to_pylist()
        assert row["replica"] == "b"
        assert "commitlog" in row["error"]


def test_a_missing_file_has_no_digest(group: Group, places: tuple[Place, ...], tmp_path: Path) -> None:
    of = work(places)
    (tmp_path / "c" / "commitlog" / f"{SEGMENT:020d}").unlink()
    found = table(places[2:], Content.DIGESTS, of).to_pylist()
    assert {row["segment"] for row in found if row["digest"] is None} == {SEGMENT}
