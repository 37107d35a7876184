"""Who a client is, and the ids it gives to its messages, as Java's client makes them.

Source: rocketmq-all-5.3.3: MessageClientIDSetter.java, ClientConfig.java.
"""

import ipaddress
import os
import time
from datetime import date

from rocketmq_formats.store.message_id import encode_unique_id
from rocketmq_runtime.sockets import own_address

_CHANGING = 12
"""The digits of the milliseconds and the counter."""


def new_client_id() -> str:
    """`ip@pid#nanoseconds`, different for each client of a process."""
    return f"{own_address()}@{os.getpid()}#{time.monotonic_ns()}"


class UniqueIds:
    """Makes UNIQ_KEYs: address, process, maker, milliseconds of the month, and a counter; 32 hexadecimal digits with an
    IPv4 address, 56 with IPv6."""

    def __init__(self) -> None:
        self._counter = 0
        self._prefix = encode_unique_id(
            ip=ipaddress.ip_address(own_address().partition("%")[0]).packed,
            pid=os.getpid(),
            loader=int.from_bytes(os.urandom(4), "big"),
            since_month_ms=0,
            counter=0,
        )[:-_CHANGING]
        self._start_ms = self._next_start_ms = 0

    def next(self, now_ms: int) -> str:
        """An id that this object did not make before; `now_ms` is the time since 1970 in milliseconds."""
        if now_ms >= self._next_start_ms:
            self._set_month(now_ms)
        self._counter = counter = (self._counter + 1) & 0xFFFF
        return f"{self._prefix}{(now_ms - self._start_ms) & 0xFFFFFFFF:08X}{counter:04X}"

    def _set_month(self, now_ms: int) -> None:
        year, month, *_ = time.gmtime(now_ms / 1000)
        self._start_ms = _month_start_ms(year, month)
        self._next_start_ms = _month_start_ms(year + month // 12, month % 12 + 1)


def _month_start_ms(year: int, month: int) -> int:
    days = (date(year, month, 1) - date(1970, 1, 1)).days
    return days * 86_400_000
