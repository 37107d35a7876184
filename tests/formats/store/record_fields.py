"""The fields of a record, as arguments of `encode_record`: any, and one plain example."""

from typing import Any

from hypothesis import strategies as st

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
HOSTS = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
FIELDS = st.fixed_dictionaries(
    {
        "topic": st.binary(max_size=140),
        "queue_id": INT32,
        "flag": INT32,
        "sys_flag": st.integers(0, 0x7FF),
        "queue_offset": INT64,
        "physical_offset": INT64,
        "born_timestamp": INT64,
        "born_host": HOSTS,
        "store_timestamp": INT64,
        "store_host": HOSTS,
        "reconsume_times": INT32,
        "prepared_transaction_offset": INT64,
        "body": st.binary(max_size=60),
        "properties": st.binary(max_size=60),
    }
)
SIMPLE: dict[str, Any] = {
    "topic": b"T1",
    "queue_id": 3,
    "flag": 4,
    "sys_flag": 0,
    "queue_offset": 5,
    "physical_offset": 6,
    "born_timestamp": 7,
    "born_host": bytes((127, 0, 0, 1, 0, 0, 0, 80)),
    "store_timestamp": 8,
    "store_host": bytes((127, 0, 0, 2, 0, 0, 0, 90)),
    "reconsume_times": 9,
    "prepared_transaction_offset": 10,
    "body": b"body",
    "properties": b"a\x01b\x02",
}
