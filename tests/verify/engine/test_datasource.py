"""The data source as anybody may use it, without the job."""

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException

from rocketmq_verify.engine.batches import SCHEMAS
from rocketmq_verify.engine.datasource import NAME, CommitLogSource
from rocketmq_verify.engine.session import Engine
from rocketmq_verify.sources.work import Content, Place
from tests.verify.history.stores import TOPIC, save_all
from tests.verify.planted.faults import CHUNK, Group


def option(places: tuple[Place, ...]) -> str:
    return ";".join(f"{place.name}={place.spec.removeprefix('files:')}" for place in places)


@pytest.mark.parametrize("content", list(Content))
def test_schemas_are_those_of_the_batches(content: Content) -> None:
    said = CommitLogSource({"content": content.value}).schema()
    assert [column.split()[0] for column in said.split(", ")] == SCHEMAS[content].names


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_tables(engine: Engine, tmp_path: Path) -> None:
    group = Group().fill()
    places = save_all(group, tmp_path)
    reader = engine.spark().read.format(NAME).option("replicas", option(places))
    digests = reader.option("chunkSize", "4Ki").load()
    assert digests.count() == 3 * -(-group.master.confirm // CHUNK)
    assert digests.groupBy("offset").agg({"digest": "min"}).count() == -(-group.master.confirm // CHUNK)
    records = reader.option("content", "records").load().where("replica = 'b'")
    confirmed = [message for message in group.messages if message.end <= group.master.confirm]
    assert records.where(f"topic = '{TOPIC}' and crcOk").count() == len(confirmed)
    (row,) = records.where(f"queueOffset = {confirmed[7].queue_offset}").collect()
    assert (row.physicalOffset, row.size) == (confirmed[7].offset, confirmed[7].size)
    part = reader.option("content", "structure").option("end", str(confirmed[3].end)).load()
    assert {(row.records, row.faults) for row in part.collect()} == {(4, 0)}


@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("options", "why"), [({}, "option replicas"), ({"replicas": "a=/x", "content": "all"}, "option content")]
)
def test_wrong_options(engine: Engine, options: dict[str, str], why: str) -> None:
    with pytest.raises(AnalysisException, match=why):
        engine.spark().read.format(NAME).options(**options).load().collect()
