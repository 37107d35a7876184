"""Unique ids (UNIQ_KEY) for messages whose producer gave none; used by the send path.

Source: rocketmq-all-5.3.3: MessageClientIDSetter.java.
"""

import itertools
import os
import time
from datetime import datetime

from rocketmq_formats.store.message_id import encode_unique_id


class UniqueIds:
    """Ids of this process; the months are those of the local time zone, as in Java."""

    def __init__(self, ip: bytes) -> None:
        self._ip = ip
        self._loader = int.from_bytes(os.urandom(4))
        self._counter = itertools.count()
        self._month_began = 0.0
        self._month_ends = 0.0

    def next(self) -> str:
        now = time.time()
        if now >= self._month_ends:
            self._begin_month(now)
        return encode_unique_id(
            ip=self._ip,
            pid=os.getpid(),
            loader=self._loader,
            since_month_ms=int((now - self._month_began) * 1000),
            counter=next(self._counter),
        )

    def _begin_month(self, now: float) -> None:
        began = datetime.fromtimestamp(now).astimezone().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        following = began.replace(year=began.year + began.month // 12, month=began.month % 12 + 1)
        self._month_began, self._month_ends = began.timestamp(), following.timestamp()
