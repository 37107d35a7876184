"""Stores of small files, written without any store: what their owner would have left there."""

from pathlib import Path

from rocketmq_formats.broker_identity import BrokerIdentity, encode_identity
from rocketmq_formats.store.checkpoint import Checkpoint, encode_checkpoint
from rocketmq_formats.store.epoch_file import EpochList, encode_epochs
from rocketmq_formats.store.segment_names import segment_name
from tests.records import blank_before, make_record

SEGMENT = 4096


def record(offset: int, body: bytes = b"hello", *, topic: bytes = b"T", properties: bytes = b"KEYS\x01k\x02") -> bytes:
    return make_record(offset, body, topic=topic, properties=properties)


class Log:
    """Bytes of a log from `start` (a file's start) on, as its owner writes them."""

    def __init__(self, start: int = 0, *, segment: int = SEGMENT) -> None:
        self.start, self.segment = start, segment
        self.data = bytearray()
        self.records: list[int] = []
        """Where each begins."""

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def put(self, *bodies: bytes, **fields: bytes) -> "Log":
        for body in bodies:
            self.data += blank_before(self.end, len(record(self.end, body, **fields)), self.segment)
            self.records.append(self.end)
            self.data += record(self.end, body, **fields)
        return self

    def fill(self, files: int) -> "Log":
        """Messages until `files` files are begun, the last one in its middle."""
        while self.end < self.start + (files - 1) * self.segment + self.segment // 2:
            self.put(b"%08d" % len(self.records) * 10)
        return self

    def save(self, root: Path, *, spare: int = 0) -> Path:
        """The files in root/commitlog, `spare` empty ones behind them."""
        folder = root / "commitlog"
        folder.mkdir(parents=True, exist_ok=True)
        files = max(-(-len(self.data) // self.segment), 1) + spare
        whole = bytes(self.data).ljust(files * self.segment, b"\0")
        for number in range(files):
            part = whole[number * self.segment : (number + 1) * self.segment]
            (folder / segment_name(self.start + number * self.segment)).write_bytes(part)
        return root


def save_small(
    root: Path,
    *,
    confirmed: int | None = None,
    epochs: tuple[tuple[int, int], ...] = (),
    broker_id: int | None = None,
) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    if confirmed is not None:
        (root / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(confirm_offset=confirmed)))
    if epochs:
        (root / "epochFileCheckpoint").write_bytes(encode_epochs(EpochList.of(epochs)))
    if broker_id is not None:
        (root / "brokerIdentity").write_bytes(encode_identity(BrokerIdentity("C", "a", broker_id)))
    return root
