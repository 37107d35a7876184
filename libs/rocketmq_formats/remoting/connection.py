"""Cuts a byte stream into remoting commands. Sans-IO: a shell feeds what it read and acts on what comes out.

Used by the server and the client of `rocketmq_runtime`, one object per connection.
"""

import struct

from rocketmq_formats.errors import FrameError
from rocketmq_formats.remoting.command import MAX_FRAME, RemotingCommand, decode_frame

_LENGTH = struct.Struct(">i")
_SMALLEST = 4  # a frame's length counts the header length word
_STRANGERS = (
    (b"\x16", "a TLS handshake: this port speaks plain remoting"),
    (b"PROX", "a PROXY protocol prefix: this port takes none"),
    (b"\r\n\r\n", "a PROXY protocol prefix: this port takes none"),
    (b"GET ", "HTTP: this port speaks remoting"),
    (b"POST", "HTTP: this port speaks remoting"),
)


class RemotingConnection:
    """The receiving half of one connection; sending needs no state.

    Every byte is copied a bounded number of times, however the stream is cut: complete frames are sliced out of the
    read itself, the rest waits in a growing buffer that is looked at again only when its frame is complete.
    """

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        """`max_frame`: largest length word accepted, in bytes."""
        self._max_frame = max_frame
        self._pending = bytearray()
        self._needed = 4
        self._broken: str | None = None

    @property
    def buffered(self) -> int:
        """Bytes held of a frame that is not complete yet."""
        return len(self._pending)

    def receive_data(self, data: bytes) -> list[RemotingCommand]:
        """The commands completed by `data`, in order.

        Raises:
            FrameError: the stream is broken, now and for every later call; commands of this call that precede the
                damage are dropped, for the connection that would carry their answers has to be closed.
        """
        if self._broken is not None:
            raise FrameError(self._broken)
        pending = self._pending
        if pending:
            pending += data
            if len(pending) < self._needed:
                return []
            data = bytes(pending)
            pending.clear()
        try:
            return self._cut(data)
        except FrameError as error:
            self._broken = str(error)
            self._pending = bytearray()
            raise

    def _cut(self, data: bytes) -> list[RemotingCommand]:
        commands = []
        at, size, max_frame = 0, len(data), self._max_frame
        read_length = _LENGTH.unpack_from
        needed = 4
        while size - at >= 4:
            (length,) = read_length(data, at)
            if not _SMALLEST <= length <= max_frame:
                raise FrameError(_refusal(data[at : at + 4], length, max_frame))
            end = at + 4 + length
            if end > size:
                needed = 4 + length
                break
            commands.append(decode_frame(data[at + 4 : end]))
            at = end
        self._needed = needed
        if at < size:
            self._pending += data[at:]
        return commands


def _refusal(start: bytes, length: int, max_frame: int) -> str:
    for prefix, what in _STRANGERS:
        if start.startswith(prefix):
            return f"the peer sends {what}"
    return f"frame length {length} is outside {_SMALLEST}..{max_frame}"
