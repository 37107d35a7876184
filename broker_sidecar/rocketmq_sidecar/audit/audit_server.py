"""Serves slaves' requests about the master's log (`replication.audit`): digests and bytes. Threads read them at a
limited rate, so that replication in the same process never starves. `ha_server` accepts the connections."""

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from rocketmq_commitlog.digests import DigestJob
from rocketmq_commitlog.errors import AbsentError, LogReadError
from rocketmq_commitlog.folder import LogFolder
from rocketmq_commitlog.token_bucket import TokenBucket
from rocketmq_formats.challenge import SEAL_SIZE, Seals
from rocketmq_formats.errors import FrameError
from rocketmq_formats.replication.audit import REQUEST_SIZE, AuditRequest, Kind, decode_request, encode_answer
from rocketmq_formats.replication.frames import SealError
from rocketmq_runtime import background
from rocketmq_runtime.log_limiter import LogLimiter

log = structlog.get_logger()

MAX_CONNECTIONS: Final = 8
"""At a time; one more closes the oldest."""
LOG_SECONDS: Final = 60.0
"""Between two lines about the refusals of one host."""
SILENCE: Final = 60.0
"""Seconds without a request, or with an answer that the slave does not read, until a connection is closed."""


async def receive(sock: socket.socket, size: int, held: bytearray) -> bytes:
    """`size` bytes, those in `held` first; the rest stays there. Raises `OSError`: the connection ended."""
    loop = asyncio.get_running_loop()
    while len(held) < size:
        data = await loop.sock_recv(sock, size - len(held))
        if not data:
            raise ConnectionResetError("closed by the other side")
        held += data
    taken = bytes(held[:size])
    del held[:size]
    return taken


def digest_of(folder: LogFolder, offset: int, length: int) -> bytes:
    """xxh3-128 of the range, empty if the log does not hold it; in a thread. Raises `LogReadError`."""
    job = DigestJob(folder, [(offset, length)])
    while not job.done:
        for digest in job.work(length):
            return digest or b""
    return b""


class AuditServer:
    """One per process; used in the event loop only."""

    def __init__(
        self, path: Path, *, bytes_per_second: float, end: Callable[[], int], on_suspected: Callable[[int], None]
    ) -> None:
        """`path`: the log's folder. `end()`: up to where slaves may read the log. `on_suspected(offset)`: a slave
        reports that there is no whole record at this offset."""
        self._path = path
        self._bucket = TokenBucket(bytes_per_second)
        self._end = end
        self._on_suspected = on_suspected
        self._may_log = LogLimiter(time.monotonic, LOG_SECONDS)
        self._tasks: dict[asyncio.Task[None], socket.socket] = {}

    def take(
        self, sock: socket.socket, peer: str, first: bytes, *, sealing: Seals | None, opening: Seals | None
    ) -> None:
        """Serve a connection whose first bytes are `first`, and close it at the end."""
        if len(self._tasks) >= MAX_CONNECTIONS:
            next(iter(self._tasks)).cancel()
        task = background.start(
            self._serve(sock, peer, bytearray(first), sealing, opening), f"request about the log by {peer}"
        )
        self._tasks[task] = sock
        task.add_done_callback(self._ended)

    def close(self) -> None:
        """End all connections."""
        for task in list(self._tasks):
            task.cancel()

    async def closed(self) -> None:
        """After `close`: until they have ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task).close()

    async def _serve(
        self, sock: socket.socket, peer: str, held: bytearray, sealing: Seals | None, opening: Seals | None
    ) -> None:
        loop, folder = asyncio.get_running_loop(), None
        try:
            while True:
                async with asyncio.timeout(SILENCE):
                    packet = await receive(sock, REQUEST_SIZE + (SEAL_SIZE if opening is not None else 0), held)
                if opening is not None and not opening.opens(packet[:REQUEST_SIZE], packet[REQUEST_SIZE:]):
                    raise SealError
                request = decode_request(packet[:REQUEST_SIZE])
                if folder is None:
                    folder = await asyncio.to_thread(LogFolder, self._path)
                answer = encode_answer(request, await self._answer(folder, request))
                async with asyncio.timeout(SILENCE):
                    await loop.sock_sendall(sock, answer if sealing is None else answer + sealing.next(answer))
        except (OSError, TimeoutError) as error:
            log.debug("audit connection closed", peer=peer, reason=str(error))
        except FrameError as error:
            if self._may_log(peer.rpartition(":")[0]):
                log.warning("a request about the log was refused", peer=peer, reason=str(error))
        except LogReadError as error:
            log.error("the log cannot be read for a slave that compares it", peer=peer, reason=str(error))

    async def _answer(self, folder: LogFolder, request: AuditRequest) -> bytes:
        if request.kind is Kind.DAMAGED:
            self._on_suspected(request.offset)
            return b""
        if request.offset + request.length > self._end():
            return b""
        await asyncio.sleep(self._bucket.take(request.length, time.monotonic()))
        work = digest_of if request.kind is Kind.DIGEST else _read
        return await asyncio.to_thread(work, folder, request.offset, request.length)


def _read(folder: LogFolder, offset: int, length: int) -> bytes:
    try:
        return folder.read(offset, length)
    except AbsentError:
        return b""
