"""Answers that hold a whole table (21, 201), made once per version of it, slice by slice in the slow lane. One that no
frame carries is refused: Java's would close the connection of its reader."""

from collections.abc import Callable, Mapping
from typing import Final

from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.slow_lane import SlowLane
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.json.bodies import Body, encode_body
from rocketmq_formats.remoting.command import MAX_FRAME, RemotingCommand, response
from rocketmq_formats.steps import Steps
from rocketmq_formats.topics import DataVersion
from rocketmq_runtime.remoting.server import Answer, Peer
from rocketmq_runtime.remoting.slow_lane import Pace, in_steps

SLICE: Final = 2000
"""Entries that are encoded in one call; 2 ms."""
MAX_BODY: Final = MAX_FRAME - 64 * 1024
"""Bytes that leave room for a header."""


def check_size(size: int, table: str) -> None:
    """
    Raises:
        RequestRefusedError: the answer with the whole table has `size` bytes or more, which is too much.
    """
    if size > MAX_BODY:
        problem = (
            f"the table of {table} is larger than the {MAX_BODY} bytes that an answer carries: ask for single ones"
        )
        raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, problem)


class TableBody:
    def __init__(
        self,
        lane: SlowLane,
        key: bytes,
        *,
        name: str,
        version: Callable[[], DataVersion],
        table: Callable[[], Mapping[str, object]],
        around: Callable[[], Body],
    ) -> None:
        """`around`: the body with an empty table, whose entries go under `key`. `name`: what the entries are."""
        self._name = name
        self._lane = lane
        self._empty = b'"%b":{}' % key
        self._full = b'"%b":{%%b}' % key
        self._table_version = version
        self._table = table
        self._around = around
        self._body = b""
        self._version: DataVersion | None = None
        self._too_large: DataVersion | None = None
        """The version that no frame carries."""

    def answer(self, request: RemotingCommand, peer: Peer) -> Answer:
        """The table as it is when it is this request's turn.

        Raises:
            RequestRefusedError: too many requests that take long, or see `steps`.
        """
        if self._version == self._table_version():
            return response(request, ResponseCode.SUCCESS, None, None, self._body)

        async def make(pace: Pace) -> RemotingCommand:
            return response(request, ResponseCode.SUCCESS, None, None, await in_steps(self.steps(), pace))

        return self._lane.answer(request, peer, make)

    def steps(self) -> Steps[bytes]:
        """The body of the version at the first step, also for slaves: changes are acknowledged when they have it.

        Raises:
            RequestRefusedError: no frame carries it.
        """
        version = self._table_version()
        if self._version == version:
            return self._body
        if self._too_large == version:
            check_size(MAX_BODY + 1, self._name)
        try:
            body = yield from self._made()
        except RequestRefusedError:
            self._too_large = version
            raise
        self._body, self._version = body, version
        return body

    def _made(self) -> Steps[bytes]:
        entries = list(self._table().items())  # frozen values, all of one moment
        around = encode_body(self._around())
        slices: list[bytes] = []
        size = len(around)
        for first in range(0, len(entries), SLICE):
            yield
            slices.append(encode_body(dict(entries[first : first + SLICE]))[1:-1])
            size += len(slices[-1]) + 1
            check_size(size, self._name)
        yield
        before, _, after = around.partition(self._empty)
        return b"".join([before, self._full % b",".join(slices), after])
