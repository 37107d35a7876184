"""Records of the commit log for tests and benchmarks that care about a few of their fields only."""

from rocketmq_formats.store.message import BLANK_SIZE, encode_blank, encode_record

HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
"""127.0.0.1:10911 as records have it."""


def make_record(
    physical_offset: int = 0,
    body: bytes = b"body",
    *,
    topic: bytes = b"T",
    queue_id: int = 0,
    queue_offset: int = 0,
    flag: int = 0,
    sys_flag: int = 0,
    host: bytes = HOST,
    timestamp: int = 1,
    store_timestamp: int | None = None,
    properties: bytes = b"",
) -> bytes:
    """`host`: where it was born and stored; `timestamp`: when it was born, ms; stored 1 ms later unless stated."""
    return encode_record(
        topic=topic,
        queue_id=queue_id,
        flag=flag,
        sys_flag=sys_flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        born_timestamp=timestamp,
        born_host=host,
        store_timestamp=timestamp + 1 if store_timestamp is None else store_timestamp,
        store_host=host,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        properties=properties,
    )


def make_blank(size: int, *, rest: bytes = b"\0") -> bytes:
    """The blank of `size` bytes that ends a file, with the byte `rest` behind its head."""
    return encode_blank(size).ljust(size, rest)


def blank_before(offset: int, record_size: int, segment: int, *, rest: bytes = b"\0") -> bytes:
    """The blank at `offset` that sends a record of `record_size` bytes to the next file; empty if the record fits."""
    room = segment - offset % segment
    return make_blank(room, rest=rest) if record_size + BLANK_SIZE > room else b""
