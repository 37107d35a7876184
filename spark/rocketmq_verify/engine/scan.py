"""What Spark does in a run: digests side by side, the structural check, consume queues. Called by `job`.

Digests of a chunk meet in a groupBy; Spark keeps those that are not all equal, or not all there, and adds up the rest,
so that only as much as differs comes to the driver.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from rocketmq_formats.soundness.structure import Structure
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_verify.domain.inquiry.cells import HALVES
from rocketmq_verify.domain.inquiry.compare import Tally, compare
from rocketmq_verify.domain.model import Chunk, ChunkDigest, ReplicaName
from rocketmq_verify.domain.planning.chunks import Plan
from rocketmq_verify.domain.planning.lineage import Lineage
from rocketmq_verify.engine.datasource import NAME
from rocketmq_verify.engine.scanner import Errors, Queues
from rocketmq_verify.engine.session import Engine
from rocketmq_verify.engine.task_rows import NOWHERE, counted, with_faults
from rocketmq_verify.progress import Progress
from rocketmq_verify.sources.work import Content, Place, Work

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

_HALF: Final = 1 << 64
_NOTHING: Final = Work(
    plan=Plan(pieces=(), borders=(), chunk_size=1 << 20, segment_size=1 << 30, full=False, new_bytes=0, old_bytes=0),
    zones=(),
    epochs=EpochList(),
)


class SparkScanner:
    """`Scanner` of a session; progress is shown by Spark's tasks."""

    def __init__(self, engine: Engine, progress: Progress) -> None:
        self._engine, self._progress = engine, progress

    def compare_digests(self, places: Sequence[Place], work: Work, lineage: Lineage) -> tuple[Tally, Errors]:
        with self._engine.watched(self._progress):
            return compare_digests(self._engine.spark(), places, work, lineage, at_once=self._engine.cores)

    def structures(self, place: Place, work: Work) -> tuple[list[Structure], Errors]:
        with self._engine.watched(self._progress):
            return structures(self._engine.spark(), place, work, at_once=self._engine.cores)

    def queues(self, place: Place, work: Work) -> tuple[Queues, Errors]:
        with self._engine.watched(self._progress):
            return queues(self._engine.spark(), place, work, at_once=self._engine.cores)


def frame(
    spark: "SparkSession", places: Sequence[Place], content: Content, work: Work, *, at_once: int = 1
) -> "DataFrame":
    """The table of `content` for `work`."""
    reader = spark.read.format(NAME).option("content", content.value).option("parallelism", str(at_once))
    reader = reader.option("replicas", ";".join(f"{place.name}={place.spec}" for place in places))
    return reader.option("plan", msgspec.json.encode(work).decode()).load()


def warm_up(spark: "SparkSession") -> None:
    """Run the comparison over no data: after it classes are loaded and workers forked."""
    cores = max(int(spark.sparkContext.defaultParallelism), 1)
    place = Place(ReplicaName("nothing"), "files:/")
    table = frame(spark, (place,), Content.DIGESTS, _NOTHING, at_once=min(cores, 4))
    for _ in _compared(table, _NOTHING.plan).toLocalIterator():
        pass


def compare_digests(
    spark: "SparkSession", places: Sequence[Place], work: Work, lineage: Lineage, *, at_once: int
) -> tuple[Tally, Errors]:
    """Read and compare everything in the plan."""
    tally = Tally()
    errors: Errors = {}
    table = frame(spark, places, Content.DIGESTS, work, at_once=at_once)
    for row in _compared(table, work.plan).toLocalIterator():
        if row["key"] is None:
            tally.chunks += row["chunks"]
            tally.bytes += row["bytes"]
            tally.read_bytes += row["read"]
            for name in row["holders"] or ():
                marks = (row["high"] % _HALF) << 64 | row["low"] % _HALF
                tally.cells.add(row["cell"], ReplicaName(name), marks, row["length"])
        elif row["key"] == NOWHERE:
            errors |= {ReplicaName(copy["replica"]): copy["error"] for copy in row["copies"]}
        else:
            chunk = Chunk(row["key"], row["chunk"]["length"], row["chunk"]["epoch"])
            copies = _digests(chunk, row["copies"])
            tally.add(compare(chunk, copies, lineage))
            tally.cells.add_chunk(work.plan, chunk, copies)
    return tally, errors


def _compared(digests: "DataFrame", plan: Plan) -> "DataFrame":
    """One row for all chunks that are equal, with key null, and one for each other: its offset.

    With a ledger, one row for those of each cell, and of those who have them: the same that `cells.CellSums` makes.
    """
    by_chunk = digests.groupBy("offset", "length", "epoch").agg(
        F.count("digest").alias("there"),
        F.count(F.lit(1)).alias("asked"),
        F.min("digest").alias("low"),
        F.max("digest").alias("high"),
        F.collect_list(F.struct("replica", "digest", "error")).alias("copies"),
    )
    cell: Column = F.lit(None).cast("long")
    if plan.cell_size:
        at = F.col("offset")
        grid, file = at - at % plan.chunk_size, at - at % plan.segment_size
        end = F.least(grid + plan.chunk_size, file + plan.segment_size)
        whole = (at == F.greatest(grid, file)) & (at + F.col("length") == end)
        cell = F.when(whole & (at >= 0), at - at % plan.cell_size)
    holders = F.when(F.col("cell").isNotNull(), F.array_sort(F.transform("copies", lambda copy: copy["replica"])))
    high, low = (F.xxhash64(F.lit(half).cast("long"), F.col("offset"), F.col("low")) for half in HALVES)
    differs = (F.col("there") != F.col("asked")) | (F.col("low") != F.col("high"))
    keyed = by_chunk.withColumn("key", F.when(differs, F.col("offset"))).withColumn("cell", cell)
    return (
        keyed.withColumn("holders", holders)
        .groupBy("key", "cell", "holders")
        .agg(
            F.count(F.lit(1)).alias("chunks"),
            F.sum(F.when(F.col("there") > 1, F.col("length")).otherwise(0)).alias("bytes"),
            F.sum(F.col("length") * F.col("there")).alias("read"),
            F.first(F.struct("length", "epoch")).alias("chunk"),
            F.first("copies").alias("copies"),
            F.sum("length").alias("length"),
            F.bit_xor(high).alias("high"),
            F.bit_xor(low).alias("low"),
        )
    )


def _digests(chunk: Chunk, copies: "Iterable[Row]") -> list[ChunkDigest]:
    found = []
    for copy in copies:
        digest = None if copy["digest"] is None else bytes(copy["digest"])
        name, error = ReplicaName(copy["replica"]), copy["error"] or ""
        found.append(ChunkDigest(name, chunk.offset, chunk.length, digest, error))
    return found


def structures(spark: "SparkSession", place: Place, work: Work, *, at_once: int) -> tuple[list[Structure], Errors]:
    """The structural check of the work's plan in one replica; ascending, one per piece of a task."""
    found: list[Structure] = []
    errors: Errors = {}
    for row in frame(spark, (place,), Content.STRUCTURE, work, at_once=at_once).toLocalIterator():
        if row["error"] is not None:
            errors[place.name] = row["error"]
        else:
            found.append(msgspec.json.decode(row["structure"], type=Structure))
    return sorted(found, key=lambda structure: structure.extent), errors


def queues(spark: "SparkSession", place: Place, work: Work, *, at_once: int) -> tuple[Queues, Errors]:
    """Consume queues and index files of the work's `queues_of` against the log of one replica."""
    table = frame(spark, (place,), Content.QUEUES, work, at_once=at_once)
    faulty = (F.col("faults") > 0) | (F.col("indexFaults") > 0)
    key = F.when(faulty | F.col("error").isNotNull(), F.monotonically_increasing_id())
    totals = (
        table.withColumn("key", key)
        .groupBy("key")
        .agg(
            F.sum("units").alias("units"),
            F.sum("lag").alias("lag"),
            F.sum("superseded").alias("superseded"),
            F.sum("faults").alias("faults"),
            F.sum("indexEntries").alias("indexEntries"),
            F.first(F.struct("replica", "topic", "queueId", "start", "end", "check", "error")).alias("queue"),
        )
    )
    errors: Errors = {}
    found = Queues()
    for row in totals.toLocalIterator():
        one = row["queue"]
        if row["key"] is not None and one["error"] is not None:
            errors[ReplicaName(one["replica"])] = one["error"]
            continue
        found = counted(found, row.asDict())
        if row["key"] is not None:
            found = with_faults(found, one.asDict())
    return found, errors
