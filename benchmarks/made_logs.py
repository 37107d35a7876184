"""Stores of many gigabytes, made in seconds: copies of one record that differ in queue and offsets only.

They hold what a broker leaves: commit log, consume queues, epochs, checkpoint. Each copy has its own pages in the page
cache, unless hard links are asked for, where copies would fit neither disk nor memory.
"""

import os
import shutil
import struct
from pathlib import Path
from typing import Final

from rocketmq_formats.store import checkpoint, epoch_file
from rocketmq_formats.store.checkpoint import Checkpoint, encode_checkpoint
from rocketmq_formats.store.consume_queue import pack_units
from rocketmq_formats.store.epoch_file import EpochList, encode_epochs
from rocketmq_formats.store.segment_names import segment_name
from tests.records import make_blank, make_record

SEGMENT: Final = 1 << 30
BODY: Final = 1024
QUEUES: Final = 8
TOPIC: Final = b"Orders"
_UNITS: Final = 300_000
"""Of a consume queue's file."""
_QUEUE_ID: Final = struct.Struct(">i")
_PLACES: Final = struct.Struct(">qq")
_QUEUE_AT: Final = 12
_PLACES_AT: Final = 20
_PROPERTIES: Final = b"UNIQ_KEY\x01" + b"7F0000010000" * 2 + b"\x02WAIT\x01true\x02CLUSTER\x01DefaultCluster\x02"


def make_stores(folder: Path, *, files: int, replicas: int = 3, linked: bool = False) -> tuple[list[Path], int]:
    """`replicas` equal stores with `files` whole files of 1 GiB; their roots, and the log's length in bytes.

    `linked`: hard links in the place of copies, and no consume queues.
    """
    first = folder / "a"
    length = _make(first, files, with_queues=not linked)
    roots = [first]
    for number in range(1, replicas):
        root = folder / "abcdefgh"[number]
        shutil.copytree(first, root, copy_function=os.link if linked else shutil.copy2)
        roots.append(root)
    return roots, length


def _make(root: Path, files: int, *, with_queues: bool) -> int:
    body = bytes(index * 7 % 251 for index in range(BODY))
    record = make_record(body=body, topic=TOPIC, timestamp=1_700_000_000_000, properties=_PROPERTIES)
    size = len(record)
    count = (SEGMENT - 8) // size
    (root / "commitlog").mkdir(parents=True)
    units: list[list[tuple[int, int, int]]] = [[] for _ in range(QUEUES)]
    number = 0
    for file in range(files):
        start = file * SEGMENT
        data = bytearray(record * count)
        for index in range(count):
            at = index * size
            queue, place = number % QUEUES, number // QUEUES
            _QUEUE_ID.pack_into(data, at + _QUEUE_AT, queue)
            _PLACES.pack_into(data, at + _PLACES_AT, place, start + at)
            if with_queues:
                units[queue].append((start + at, size, 0))
            number += 1
        data += make_blank(SEGMENT - len(data))
        (root / "commitlog" / segment_name(start)).write_bytes(data)
    for queue, own in enumerate(units if with_queues else ()):
        _write_queue(root / "consumequeue" / TOPIC.decode() / str(queue), own)
    end = files * SEGMENT
    (root / epoch_file.FILE_NAME).write_bytes(encode_epochs(EpochList.of([(1, 0)])))
    (root / checkpoint.FILE_NAME).write_bytes(encode_checkpoint(Checkpoint(confirm_offset=end)))
    return end


def _write_queue(folder: Path, units: list[tuple[int, int, int]]) -> None:
    folder.mkdir(parents=True)
    for first in range(0, len(units), _UNITS):
        data = pack_units(units[first : first + _UNITS])
        (folder / segment_name(first * 20)).write_bytes(data.ljust(_UNITS * 20, b"\0"))
