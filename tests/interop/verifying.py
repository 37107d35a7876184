"""`rocketmq-verify` on stores that other tests have taken through failovers, and damage to copies of them. Messages
and their places are read with the formats alone, independently of the command.

The command runs as users run it, or with the session of Spark that the tests share: beside brokers at full load a new
one takes a minute on two cores.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from rocketmq_formats.store import epoch_file
from rocketmq_formats.store.consume_queue import UNIT_SIZE
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_formats.store.message import MAGIC_BLANK, Record, read_record
from rocketmq_formats.store.segment_names import segment_name
from rocketmq_verify import job
from rocketmq_verify.domain.verdict import Verdict
from rocketmq_verify.engine.session import Engine
from rocketmq_verify.history.runs import Group
from rocketmq_verify.progress import NoProgress
from rocketmq_verify.report import json_report
from rocketmq_verify.report.json_report import StructureReport
from rocketmq_verify.run import EngineKind, QueueSummary, Request
from rocketmq_verify.sources.source import SIDECAR
from rocketmq_verify.sources.work import parse_place
from tests.gate.patience import patient

_PATIENCE = patient(300.0)
"""Seconds for one run; eight on an idle machine, most of them until Spark has started."""


class Said(Verdict, frozen=True, kw_only=True, rename="camel"):
    """The command's output and exit code."""

    structure: StructureReport | None
    queues: QueueSummary | None
    travelled_bytes: int


def verify(
    stores: Mapping[str, Path], sidecars: Mapping[str, str] | None = None, *, engine: Engine | None = None
) -> tuple[int, Said]:
    """Exit code and result, of replicas by name: directories, and addresses of sidecars.

    Args:
        engine: None: the command itself, in a process of its own.
    """
    places = [f"{name}={store}" for name, store in stores.items()]
    served = [f"{name}={address}" for name, address in (sidecars or {}).items()]
    if engine is not None:
        parsed = (*(parse_place(one) for one in places), *(parse_place(one, SIDECAR) for one in served))
        run = job.run(Request(group=Group("", ""), places=parsed, engine=EngineKind.SPARK), engine, NoProgress())
        return run.verdict.exit_code, msgspec.json.decode(json_report.encode(run, plan=False), type=Said)
    command = [sys.executable, "-m", "rocketmq_verify", "--quiet", "--output", "json"]
    command += [part for one in places for part in ("--replica", one)]
    command += [part for one in served for part in ("--sidecar", one)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE)
    assert done.returncode in {0, 1}, (done.stdout, done.stderr)
    return done.returncode, msgspec.json.decode(done.stdout, type=Said)


def aligned(
    stores: Mapping[str, Path],
    sidecars: Mapping[str, str] | None = None,
    *,
    least: int,
    still: bool = False,
    engine: Engine | None = None,
) -> Said:
    """Verify: all is aligned, and at least `least` bytes of every replica were compared.

    Args:
        still: there are no writers, so the replicas have the same end.
        engine: see `verify`.
    """
    code, said = verify(stores, sidecars, engine=engine)
    print(said.summary, said.travelled_bytes)
    assert (code, said.result) == (0, "aligned"), said
    assert said.moved == ()
    assert {one.kind for one in said.findings} <= (set() if still else {"lagging", "staleTail"}), said
    assert len(said.replicas) == len(stores) + len(sidecars or {})
    assert all((one.compared_up_to or 0) >= least for one in said.replicas), said
    if still:
        assert said.aligned_up_to == said.confirm_offset
        assert {one.max_offset for one in said.replicas} == {said.confirm_offset}
    return said


class Store:
    """A store without a writer."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def copy(cls, root: Path, target: Path) -> "Store":
        """To be damaged."""
        return cls(Path(shutil.copytree(root, target)))

    @property
    def files(self) -> list[Path]:
        """Of the log, the first one first."""
        return sorted((self.root / "commitlog").iterdir())

    @property
    def epochs(self) -> EpochList:
        return epoch_file.decode_epochs((self.root / epoch_file.FILE_NAME).read_bytes())

    def epoch_at(self, offset: int) -> int:
        """The epoch of the byte there."""
        entry = self.epochs.entry_at(offset)
        assert entry is not None
        return entry.epoch

    def messages(self, topic: str, *, files_from: int = 0, below: int | None = None) -> list[Record]:
        """Messages of the topic that begin below `below`, in files from `files_from` on; their `position` is in
        their file."""
        return [
            record
            for file in self.files
            if files_from <= int(file.name) and (below is None or int(file.name) < below)
            for record in _records(file.read_bytes(), None if below is None else below - int(file.name))
            if record.topic == topic.encode()
        ]

    def flip(self, offset: int) -> None:
        """Flip one bit of the byte at this physical offset."""
        size = self.files[0].stat().st_size
        _flip(self.root / "commitlog" / segment_name(offset - offset % size), offset % size)

    def flip_unit(self, record: Record) -> None:
        """Flip one bit of the offset in the message's unit of its queue."""
        folder = self.root / "consumequeue" / record.topic.decode() / str(record.queue_id)
        at = record.queue_offset * UNIT_SIZE
        size = next(folder.iterdir()).stat().st_size
        _flip(folder / segment_name(at - at % size), at % size + 6)


def _records(data: bytes, limit: int | None) -> Iterator[Record]:
    position = 0
    while data[position : position + 4] not in {b"", bytes(4)} and (limit is None or position < limit):
        if int.from_bytes(data[position + 4 : position + 8]) == MAGIC_BLANK:
            return
        record = read_record(data, position, len(data), check_crc=True)
        assert isinstance(record, Record)
        yield record
        position += record.size


def _flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def assert_damaged(said: Said, record: Record, *, where: str, difference: int, epoch: int) -> None:
    """One finding: this message, wrong there, right everywhere else."""
    (finding,) = said.findings
    others = {one.name for one in said.replicas} - {where}
    assert (said.result, said.counts["corruptRecord"]) == ("mismatch", 1)
    assert (finding.kind, finding.replicas) == ("corruptRecord", (where,))
    assert (finding.start, finding.end) == (record.physical_offset, record.physical_offset + record.size)
    assert (finding.first_difference, finding.epoch) == (difference, epoch)
    assert_names(finding.record, record)
    assert {copy.replica: copy.right for copy in finding.copies} == {where: False, **dict.fromkeys(others, True)}
    assert f"is damaged in {where}" in said.summary


def assert_names(found: object, record: Record) -> None:
    """The name of a message in a finding is that of `record`."""
    assert found is not None
    told = tuple(getattr(found, key) for key in ("topic", "queue_id", "queue_offset", "physical_offset"))
    assert told == (record.topic.decode(), record.queue_id, record.queue_offset, record.physical_offset)
