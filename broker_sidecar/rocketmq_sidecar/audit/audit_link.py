"""A slave's requests to its master about the log (`replication.audit`), one at a time. Used by `log_audit`."""

import asyncio
import contextlib
import socket
from types import TracebackType
from typing import Final, Self

from rocketmq_formats.addresses import parse_address
from rocketmq_formats.challenge import SEAL_SIZE, Seals
from rocketmq_formats.replication.audit import HEAD_SIZE, MAX_READ, AuditRequest, Kind, decode_head, encode_request
from rocketmq_formats.replication.frames import SealError
from rocketmq_runtime import lookups
from rocketmq_sidecar.audit.audit_server import receive
from rocketmq_sidecar.domain.replication.ha_challenge import SlaveChallenge, State

ANSWER_SECONDS: Final = 20.0
"""For a digest of 16 MiB from a busy disk, after other slaves' requests."""
CONNECT_SECONDS: Final = 3.0


class AuditLink:
    """Open with `open`; close it, or use it as a context."""

    def __init__(self, sock: socket.socket, held: bytes, sealing: Seals | None, opening: Seals | None) -> None:
        self._socket = sock
        self._held = bytearray(held)
        self._sealing, self._opening = sealing, opening

    @classmethod
    async def open(cls, address: str, challenge: SlaveChallenge | None) -> Self:
        """Connect to the HA port at `address` and authenticate. Raises `OSError`, `TimeoutError`,
        `FrameError`."""
        loop = asyncio.get_running_loop()
        host, port = parse_address(address)
        async with asyncio.timeout(CONNECT_SECONDS):
            place, *_ = await lookups.places(host, port)
            with contextlib.ExitStack() as undo:
                sock = socket.socket(place.family, socket.SOCK_STREAM)
                undo.callback(sock.close)
                sock.setblocking(False)
                await loop.sock_connect(sock, place.address)
                if challenge is None:
                    link = cls(sock, b"", None, None)
                else:
                    await loop.sock_sendall(sock, challenge.begin())
                    while challenge.state is not State.OVER:
                        data = await loop.sock_recv(sock, 4096)
                        if not data:
                            raise ConnectionResetError("the master closed the connection without authenticating itself")
                        await loop.sock_sendall(sock, challenge.receive(data))
                    link = cls(sock, challenge.rest(), challenge.sealing, challenge.opening)
                undo.pop_all()
        return link

    async def digest(self, offset: int, length: int) -> bytes | None:
        """Of at most 16 MiB; None where the master does not hold all of it. Raises as `open`."""
        return await self._call(AuditRequest(Kind.DIGEST, offset, length)) or None

    async def read(self, offset: int, length: int) -> bytes | None:
        """The same of its bytes."""
        data = b""
        while len(data) < length:
            part = await self._call(AuditRequest(Kind.READ, offset + len(data), min(MAX_READ, length - len(data))))
            if not part:
                return None
            data += part
        return data

    async def report_damage(self, offset: int) -> None:
        """The master's record at `offset` is not whole. Raises as `open`."""
        await self._call(AuditRequest(Kind.DAMAGED, offset))

    async def _call(self, request: AuditRequest) -> bytes:
        packet = encode_request(request)
        async with asyncio.timeout(ANSWER_SECONDS):
            if self._sealing is not None:
                packet += self._sealing.next(packet)
            await asyncio.get_running_loop().sock_sendall(self._socket, packet)
            head = await receive(self._socket, HEAD_SIZE, self._held)
            body = await receive(self._socket, decode_head(head, request), self._held)
            if self._opening is not None:
                found = await receive(self._socket, SEAL_SIZE, self._held)
                if not self._opening.opens(head + body, found):
                    raise SealError
        return body

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
