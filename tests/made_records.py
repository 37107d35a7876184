"""One message as a record of the commit log, where a test cares for a few of its fields only."""

from rocketmq_formats.store.message import encode_record

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
    properties: bytes = b"",
) -> bytes:
    """`host`: where it was born and stored; `timestamp` (ms): when it was born, a millisecond before it was stored."""
    return encode_record(
        topic=topic,
        queue_id=queue_id,
        flag=flag,
        sys_flag=sys_flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        born_timestamp=timestamp,
        born_host=host,
        store_timestamp=timestamp + 1,
        store_host=host,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        properties=properties,
    )
