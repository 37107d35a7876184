"""What is read from which replica, as values that go from the driver to Spark's workers: as the data source's option
`plan`, and in its partitions. Made by the job, or by the data source itself when it is used alone. Without Spark.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from rocketmq_api.log_view import MAX_CHECK
from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_verify.domain.model import Chunk, ReplicaName
from rocketmq_verify.domain.planning.chunks import Plan, chunks, covered, plan, split
from rocketmq_verify.domain.planning.lineage import Lineage, Zone
from rocketmq_verify.sources.source import FILES, SIDECAR, SourceOptions, SpecError

PART_BYTES: Final = 512 << 20
"""What a task of Spark reads at least: a task costs about 30 ms in any case."""
MOST_PARTS: Final = 1024
"""Tasks of one replica."""
SIDECAR_PARTS: Final = 2
"""Calls that a sidecar answers at the same time."""
QUEUE_EXTENT: Final = MAX_CHECK
"""Of the log, checked against consume queues at once, here and by sidecars: bounds the memory."""


class Content(StrEnum):
    """Contents of the rows."""

    DIGESTS = "digests"
    RECORDS = "records"
    STRUCTURE = "structure"
    QUEUES = "queues"


class Place(msgspec.Struct, frozen=True):
    """A replica and where it is read: `files:DIRECTORY` or `sidecar:HOST:PORT`."""

    name: ReplicaName
    spec: str

    @property
    def has_files(self) -> bool:
        return self.spec.startswith(f"{FILES}:")


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What to read from all replicas."""

    plan: Plan
    zones: tuple[Zone, ...]
    """Of the replicas that are read."""
    epochs: EpochList
    """Of the reference."""
    options: SourceOptions = SourceOptions()
    queues_of: tuple[Place, ...] = ()
    """Replicas whose consume queues are checked against the log that is read."""
    per_task: int = PART_BYTES

    @classmethod
    def of(cls, what: Plan, lineage: Lineage, options: SourceOptions, **more: object) -> "Work":
        """From the job's own fields; `more`: other fields."""
        return msgspec.structs.replace(
            cls(plan=what, zones=lineage.zones, epochs=lineage.epochs, options=options), **more
        )

    def zone(self, replica: ReplicaName) -> Zone | None:
        return next((zone for zone in self.zones if zone.replica == replica), None)


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What one task of Spark reads, from one replica."""

    place: Place
    content: Content
    pieces: tuple[Extent, ...]
    """Ascending."""
    zone: Zone
    work: Work
    options: SourceOptions

    def chunks(self) -> Iterator[Chunk]:
        """Of the pieces, those wholly in the replica's zone."""
        known = Lineage(
            reference=None,
            epochs=self.work.epochs,
            confirm_offset=0,
            segment_size=self.work.plan.segment_size,
            zones=self.work.zones,
            findings=(),
        )
        zone = self.zone.extent
        for chunk in chunks(self.work.plan, self.pieces, known):
            if chunk.extent.meet(zone) == chunk.extent:
                yield chunk

    def extents(self) -> Iterator[Extent]:
        """Of the pieces, what is in the replica's zone; neighbours are not joined."""
        for piece in self.pieces:
            extent = piece.meet(self.zone.extent)
            if extent.length:
                yield extent


def parse_places(text: str) -> tuple[Place, ...]:
    """`a=files:/data/a;b=sidecar:host:10920`; a path without `files:` is a directory too.

    Raises:
        SpecError: no name, nothing after it, or a name twice.
    """
    found: dict[ReplicaName, Place] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        place = parse_place(part)
        if place.name in found:
            raise SpecError(f"replica {place.name} is given twice")
        found[place.name] = place
    return tuple(found.values())


def parse_place(text: str, kind: str = FILES) -> Place:
    """`name=place`; `kind` is the kind of a place without one. Raises `SpecError`."""
    name, equals, spec = text.partition("=")
    name, spec = name.strip(), spec.strip()
    if not (equals and name and spec):
        raise SpecError(f"{text!r} does not name a replica: give NAME=DIRECTORY or NAME=sidecar:HOST:PORT")
    if not spec.startswith((f"{FILES}:", f"{SIDECAR}:")):
        spec = f"{kind}:{spec}"
    return Place(ReplicaName(name), spec)


def everything(lineage: Lineage, *, chunk_size: int, start: int = 0, end: int = 2**63 - 1) -> Plan:
    """A plan to read all that any replica has in `[start, end)`."""
    whole = covered((zone.extent for zone in lineage.zones), copies=1)
    wanted = [extent for piece in whole if (extent := piece.meet(Extent(start, end))).length]
    template = plan(lineage, (), chunk_size=chunk_size)
    return msgspec.structs.replace(
        template,
        pieces=tuple(wanted),
        full=True,
        new_bytes=sum(extent.length for extent in wanted),
        old_bytes=0,
    )


def tasks(places: Sequence[Place], content: Content, work: Work, *, at_once: int = 1) -> list[Task]:
    """The work as tasks: few large ones per replica, the replicas in turn.

    Args:
        at_once: most tasks that run at the same time; a limit of bytes per second is divided among them.
    """
    by_replica: list[list[Task]] = []
    for place in places:
        zone = work.zone(place.name)
        if zone is not None:
            by_replica.append(_of_replica(place, content, work, zone, at_once))
    most = max(map(len, by_replica), default=0)
    return [tasks[index] for index in range(most) for tasks in by_replica if index < len(tasks)]


def nothing(place: Place, content: Content, work: Work, zone: Zone | None = None) -> Task:
    """A task with nothing to read."""
    empty = Zone(replica=place.name, extent=Extent(0, 0), sure=0, end=0)
    return Task(place=place, content=content, pieces=(), zone=zone or empty, work=work, options=work.options)


def _of_replica(place: Place, content: Content, work: Work, zone: Zone, at_once: int) -> list[Task]:
    pieces = [extent for piece in work.plan.pieces if (extent := piece.meet(zone.extent)).length]
    expected = sum(piece.length for piece in pieces)
    count = max(1, min(-(-expected // work.per_task), MOST_PARTS))
    together = at_once
    if not all(one.has_files for one in (place, *work.queues_of)):
        together = min(at_once, SIDECAR_PARTS)
        count = min(count, SIDECAR_PARTS)
    rate = work.options.bytes_per_second
    options = work.options
    if rate:
        options = msgspec.structs.replace(options, bytes_per_second=max(rate // min(count, together), 1))
    # each task carries its own pieces only
    slim = msgspec.structs.replace(work, plan=msgspec.structs.replace(work.plan, pieces=()))
    return [
        Task(place=place, content=content, pieces=part, zone=zone, work=slim, options=options)
        for part in split(pieces, count, work.plan.chunk_size)
    ]
