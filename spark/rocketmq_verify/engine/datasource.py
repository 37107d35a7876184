"""`spark.read.format("rocketmq-commitlog")`: commit logs of replicas as tables, for the job and for notebooks.

    register(spark)
    spark.read.format("rocketmq-commitlog").option("replicas", "a=/data/a;b=sidecar:host:10920").load()

Options:
    replicas    NAME=PLACE, separated by `;`: a storePathRootDir (`files:` in front or not), or sidecar:HOST:PORT
    content     digests (default), records, structure, queues: see `batches.SCHEMAS`
    start, end  physical offsets; default: all that is confirmed
    chunkSize   bytes of a chunk, a power of two, k/Ki/Mi allowed; default 1Mi
    rate        maximum bytes per second of each replica; default: none (files), as it is configured (sidecar)
    parallelism tasks that run at the same time, to divide the rate
    tlsCertFile, tlsKeyFile, tlsCaFile   files (PEM) for sidecars with mutual TLS
    plan        what the job has planned to read (`work.Work` as JSON), instead of start, end, chunkSize, rate and TLS
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from rocketmq_api.client_tls import ClientTls
from rocketmq_settings.verify import CHUNK_SIZE
from rocketmq_verify.domain.model import ReplicaLog
from rocketmq_verify.domain.planning.lineage import lineage
from rocketmq_verify.engine.batches import SCHEMAS, read
from rocketmq_verify.sizes import parse_size
from rocketmq_verify.sources.open_source import open_source
from rocketmq_verify.sources.source import SourceOptions, SpecError
from rocketmq_verify.sources.work import Content, Place, Task, Work, everything, nothing, parse_places, tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NAME: Final = "rocketmq-commitlog"
_TYPES: Final = {"string": "string", "int64": "long", "int32": "int", "binary": "binary", "bool": "boolean"}


class TaskPartition(InputPartition):
    """One task, pickled."""

    def __init__(self, task: Task) -> None:
        super().__init__(0)
        self.task = task


class CommitLogSource(DataSource):
    @classmethod
    def name(cls) -> str:
        """The format's name in Spark."""
        return NAME

    def schema(self) -> str:
        """Columns of the requested content."""
        schema = SCHEMAS[_content(self.options)]
        return ", ".join(f"{field.name} {_TYPES[str(field.type)]}" for field in schema)

    def reader(self, schema: "StructType") -> "CommitLogReader":
        """Made on the driver, used on the executors."""
        del schema
        return CommitLogReader(self.options)


class CommitLogReader(DataSourceReader):
    """Divides the work and does it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def partitions(self) -> Sequence[TaskPartition]:
        """At least one, or Spark would make an empty one."""
        content = _content(self._options)
        places = parse_places(self._options.get("replicas", ""))
        if not places:
            raise SpecError("option replicas: give NAME=DIRECTORY or NAME=sidecar:HOST:PORT, separated by ;")
        planned = self._options.get("plan")
        work = _described(places, self._options) if planned is None else msgspec.json.decode(planned, type=Work)
        at_once = int(self._options.get("parallelism", "1"))
        found = tasks(places, content, work, at_once=at_once)
        return [TaskPartition(task) for task in found or [nothing(places[0], content, work)] * at_once]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Arrow batches, in Spark's order of columns."""
        assert isinstance(partition, TaskPartition)
        return read(partition.task)


def register(spark: "SparkSession") -> None:
    """Register the format in this session."""
    spark.dataSource.register(CommitLogSource)


def _content(options: Mapping[str, str]) -> Content:
    text = options.get("content", Content.DIGESTS.value)
    try:
        return Content(text)
    except ValueError as error:
        raise SpecError(f"option content: {text!r} is not one of {', '.join(Content)}") from error


def _described(places: Sequence[Place], options: Mapping[str, str]) -> Work:
    """What to read, by the replicas' descriptions."""
    source_options = SourceOptions(tls=_tls(options), bytes_per_second=parse_size(options.get("rate", "0")))
    logs: list[ReplicaLog] = []
    for place in places:
        with closing(open_source(place.name, place.spec, source_options)) as source:
            logs.append(source.describe())
    known = lineage(logs)
    what = everything(
        known,
        chunk_size=parse_size(options.get("chunkSize", CHUNK_SIZE)),
        start=parse_size(options.get("start", "0")),
        end=parse_size(options.get("end", str(2**63 - 1))),
    )
    files = tuple(place for place in places if place.has_files)
    return Work.of(what, known, source_options, queues_of=files)


def _tls(options: Mapping[str, str]) -> ClientTls | None:
    files = [options.get(key, "") for key in ("tlsCertFile", "tlsKeyFile", "tlsCaFile")]
    if not any(files):
        return None
    if not all(files):
        raise SpecError("options tlsCertFile, tlsKeyFile and tlsCaFile go together")
    return ClientTls(cert_file=files[0], key_file=files[1], ca_file=files[2])
