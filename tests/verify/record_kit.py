"""Logs made for tests of the verification: what was put where, and golden logs of official brokers."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from hypothesis import strategies as st

from rocketmq_formats.store.message import BLANK_SIZE
from rocketmq_formats.store.message_properties import format_properties
from tests.paths import GOLDEN_FILES
from tests.records import blank_before, make_record

SEGMENT = 4096
NOW = 1_700_000_000_000
V4 = bytes((10, 0, 0, 1, 0, 0, 0x2A, 0x9F))
V6 = bytes(16) + V4[4:]
GOLDEN = GOLDEN_FILES / "store"
INDEX: dict[str, Any] = json.loads((GOLDEN / "index.json").read_text())


class Sent(NamedTuple):
    """A message of a made log; each has its place in the log as its queue offset, unless said otherwise."""

    body: bytes = b"body"
    topic: str = "TopicTest"
    queue_id: int = 3
    properties: Mapping[str, str] = MappingProxyType({"KEYS": "order-7", "UNIQ_KEY": "7F00000100002A9F0000"})
    sys_flag: int = 0
    host: bytes = V4
    timestamp: int = NOW
    queue_offset: int | None = None


class Made(NamedTuple):
    """A record or a blank of a made log."""

    offset: int
    size: int
    sent: Sent | None

    @property
    def end(self) -> int:
        return self.offset + self.size


def make_log(messages: Sequence[Sent], *, base: int = 0, segment_size: int = SEGMENT) -> tuple[bytearray, list[Made]]:
    """The bytes from physical offset `base`, where the first record is, and what they are."""
    data, made = bytearray(), list[Made]()
    for number, sent in enumerate(messages):
        size = len(encode(sent, 0, number))
        assert size <= segment_size - BLANK_SIZE
        if blank := blank_before(base + len(data), size, segment_size, rest=b"\xee"):
            made.append(Made(base + len(data), len(blank), None))
            data += blank
        made.append(Made(base + len(data), size, sent))
        data += encode(sent, made[-1].offset, number)
    return data, made


def encode(sent: Sent, at: int, number: int = 0) -> bytes:
    return make_record(
        at,
        sent.body,
        topic=sent.topic.encode(),
        queue_id=sent.queue_id,
        queue_offset=number if sent.queue_offset is None else sent.queue_offset,
        sys_flag=sent.sys_flag,
        host=sent.host,
        timestamp=NOW,
        store_timestamp=sent.timestamp,
        properties=format_properties(sent.properties),
    )


def golden_log(broker: str) -> tuple[bytes, int, int]:
    """Bytes from offset 0 of `controlled` or `alone`, end of the last record, and the size of a segment."""
    files = sorted(
        (entry for entry in INDEX["files"] if entry["file"].startswith(f"{broker}/commitlog/")),
        key=lambda entry: str(entry["path"]),
    )
    size = files[0]["size"]
    stored = [(GOLDEN / entry["file"]).read_bytes() for entry in files]
    return b"".join(data.ljust(size, b"\0") for data in stored), size * (len(files) - 1) + len(stored[-1]), size


SENT = st.builds(
    Sent,
    body=st.binary(max_size=900),
    topic=st.sampled_from(["A", "TopicTest", "%RETRY%" + "g" * 130]),
    queue_id=st.integers(0, 8),
    sys_flag=st.sampled_from([0, 0, 0, 1, 4, 8, 12, 0x80]),
    host=st.sampled_from([V4, V4, V6]),
    timestamp=st.just(NOW),
    queue_offset=st.none(),
    properties=st.dictionaries(st.sampled_from(["KEYS", "UNIQ_KEY", "TAGS", "k"]), st.text("abcé", min_size=1)),
)
LOGS = st.lists(SENT, min_size=1, max_size=14)
BASES = st.sampled_from([0, SEGMENT * 5, 10**12 - 10**12 % SEGMENT, SEGMENT * 5 + 700])


@st.composite
def damages(draw: st.DrawFn, most: int = 3) -> list[tuple[float, bytes]]:
    """Where (part of the length) which bytes are put over what is there."""
    run = st.one_of(st.binary(min_size=1, max_size=4), st.just(bytes(60)), st.just(bytes(700)))
    return draw(st.lists(st.tuples(st.floats(0, 0.999), run), min_size=1, max_size=most))


def damage(data: bytearray, made: Sequence[Made], base: int, where: Sequence[tuple[float, bytes]]) -> list[Made]:
    """Put them in; returns what was not touched, or overwritten with what was there."""
    before = bytes(data)
    for part, run in where:
        at = int(part * len(data))
        data[at : at + len(run)] = run[: len(data) - at]
    return [m for m in made if before[m.offset - base : m.end - base] == data[m.offset - base : m.end - base]]
