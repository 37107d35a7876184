"""RocketMQ's remoting protocol, its commit log records and the few requests of the campaign. They are written from the
protocol's description and share no code with the product, so that one mistake cannot hide in both.

Source: rocketmq-all-5.3.3: RemotingCommand.java, MessageDecoder.java, RequestCode.java.
"""

import asyncio
import itertools
import json
import re
import socket
import struct
from typing import Any, NamedTuple, Protocol

SEND, PULL, QUERY_OFFSET, UPDATE_OFFSET, CREATE_TOPIC = 310, 11, 14, 15, 17
MAX_OFFSET, MIN_OFFSET, ROUTE = 30, 31, 105
SUCCESS, PULL_NOT_FOUND, PULL_RETRY, PULL_MOVED = 0, 19, 20, 21

_PREFIX = struct.Struct(">ii")
_HEAD = struct.Struct(">iIiiiqqiq")
"""Size, magic, CRC of the body, queue, flag, queue offset, physical offset, sysFlag, born time."""
FIXED = _HEAD.size
_MAGICS = {0xDAA320A7: 1, 0xDAA320AB: 2}
FRAME_LIMIT = 64 << 20


class RemotingError(Exception):
    """The peer answered with an unexpected code, or not at all (code None)."""

    def __init__(self, code: int | None, remark: str) -> None:
        super().__init__(f"code {code}: {remark}")
        self.code = code


async def open_stream(
    address: str, timeout: float = 1.0, over: socket.socket | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Both ends of a connection to host:port. Raises OSError (TimeoutError)."""
    host, _, port = address.rpartition(":")
    # Not `asyncio.wait_for`: in Python 3.11 it swallows a cancellation that meets its end.
    async with asyncio.timeout(timeout):
        if over is None:
            return await asyncio.open_connection(host, int(port))
        await asyncio.get_running_loop().sock_connect(over, (host, int(port)))
        return await asyncio.open_connection(sock=over)


class Answer(NamedTuple):
    code: int
    remark: str
    fields: dict[str, str]
    body: bytes


def place_of(answer: Answer) -> int:
    """The offset in the commit log of a message whose send was answered."""
    return int(answer.fields["msgId"][-16:], 16)


def frame(code: int, fields: dict[str, Any], body: bytes = b"", *, opaque: int = 0, flag: int = 0) -> bytes:
    """One request as bytes."""
    header = json.dumps(
        {
            "code": code,
            "extFields": {key: str(value) for key, value in fields.items()},
            "flag": flag,
            "language": "PYTHON",
            "opaque": opaque,
            "version": 479,
        }
    ).encode()
    return _PREFIX.pack(4 + len(header) + len(body), len(header)) + header + body


class Asks(Protocol):
    """What a poll needs of a connection."""

    @property
    def closed(self) -> bool:
        """It ended, from either side."""

    async def ask(self, code: int, fields: dict[str, Any], body: bytes = b"", *, timeout: float = 3.0) -> Answer:
        """Raises RemotingError."""


class Connection:
    """One connection; any number of requests under way."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._opaque = itertools.count(1)
        self._reading = asyncio.create_task(self._read(reader))
        self.closed = False

    @classmethod
    async def open(cls, address: str, timeout: float = 1.0, *, over: socket.socket | None = None) -> "Connection":
        """`over`: a socket of another network namespace. Raises OSError (TimeoutError)."""
        return cls(*await open_stream(address, timeout, over))

    async def ask(self, code: int, fields: dict[str, Any], body: bytes = b"", *, timeout: float = 3.0) -> Answer:
        """Raises RemotingError with code None if no answer comes."""
        opaque = next(self._opaque)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = answer
        try:
            if self.closed or self._writer.is_closing():
                raise RemotingError(None, "connection closed")
            self._writer.write(frame(code, fields, body, opaque=opaque))
            async with asyncio.timeout(timeout):
                return await answer
        except (OSError, TimeoutError) as error:
            raise RemotingError(None, repr(error)) from None
        finally:
            self._waiting.pop(opaque, None)

    def close(self) -> None:
        """Close at once, without sending what is still buffered."""
        self.closed = True
        self._reading.cancel()
        self._writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                size, mark = _PREFIX.unpack(await reader.readexactly(8))
                if not 4 <= size <= FRAME_LIMIT:
                    break
                data = await reader.readexactly(size - 4)
                length = mark & 0xFFFFFF
                header = json.loads(data[:length])
                answer = self._waiting.get(header["opaque"])
                if header["flag"] & 1 and answer is not None and not answer.done():
                    answer.set_result(
                        Answer(header["code"], header.get("remark") or "", header.get("extFields") or {}, data[length:])
                    )
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.closed = True
            self._writer.transport.abort()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(RemotingError(None, "connection lost"))


class Record(NamedTuple):
    queue: int
    queue_offset: int
    physical_offset: int
    body_crc: int
    store_time: int
    body: bytes
    topic: str
    properties: dict[str, str]


def records(data: bytes) -> list[Record]:
    """The records that lie one behind the other in `data`. Raises ValueError for anything else."""
    found = []
    position = 0
    while position < len(data):
        size, magic, crc, queue, _, queue_offset, physical, sys_flag, _ = _HEAD.unpack_from(data, position)
        version = _MAGICS.get(magic)
        if version is None or position + size > len(data):
            raise ValueError(f"no record at {position}: magic {magic:08x}, size {size}")
        at = position + _HEAD.size + (20 if sys_flag & 0x10 else 8)
        (store_time,) = struct.unpack_from(">q", data, at)
        at += 8 + (20 if sys_flag & 0x20 else 8) + 4 + 8
        (length,) = struct.unpack_from(">i", data, at)
        body = data[at + 4 : at + 4 + length]
        at += 4 + length
        topic_length = data[at] if version == 1 else int.from_bytes(data[at : at + 2])
        at += version
        topic = data[at : at + topic_length].decode()
        at += topic_length
        (length,) = struct.unpack_from(">h", data, at)
        text = data[at + 2 : at + 2 + length].decode(errors="replace")
        pairs = (pair.partition("\1") for pair in text.split("\2") if pair)
        found.append(
            Record(queue, queue_offset, physical, crc, store_time, body, topic, {key: value for key, _, value in pairs})
        )
        position += size
    return found


def send_fields(
    topic: str, queue: int, properties: dict[str, str], *, sys_flag: int = 0, born: int = 0
) -> dict[str, Any]:
    """The header of SEND_MESSAGE_V2."""
    text = "".join(f"{key}\1{value}\2" for key, value in properties.items())
    return {
        "a": "campaign",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue,
        "f": sys_flag,
        "g": born,
        "h": 0,
        "i": text,
        "j": 0,
        "k": "false",
        "l": 16,
        "m": "false",
    }


def pull_fields(group: str, topic: str, queue: int, offset: int, *, wait_ms: int, most: int = 32) -> dict[str, Any]:
    """The header of PULL_MESSAGE: everything, held for up to `wait_ms` where there is nothing."""
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": queue,
        "queueOffset": offset,
        "maxMsgNums": most,
        "sysFlag": 4 | (2 if wait_ms else 0),
        "commitOffset": 0,
        "suspendTimeoutMillis": wait_ms,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }


def lenient_json(data: bytes) -> Any:
    """Java writes numbers as keys of maps without quotes: `{0:"10.0.0.1:10911"}`."""
    return json.loads(_BARE_KEY.sub(rb'\1"\2":', data))


_BARE_KEY = re.compile(rb"([{,])(-?[0-9]+):")
