"""Follows one master for as long as it is told to: lock, 906, connection, and again. Driven by `replication`.

Every failure ends in another try: soon for what passes quickly (a master that is not one yet), every `RETRY_LAST`
seconds for what needs somebody else. Each reason is logged when it begins and not again.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final

import structlog

from rocketmq_formats.errors import FormatError
from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.ha_info import ExchangeHAInfoHeader
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_runtime.client import RemotingClient, RemotingError, parse_address
from rocketmq_runtime.filesystem import StorageError
from rocketmq_sidecar.domain.replication_errors import TruncationError
from rocketmq_sidecar.finish import finish
from rocketmq_sidecar.ha_client import MasterConnection
from rocketmq_store.errors import StoreError, WriterLockHeldError
from rocketmq_store.writer_lock import WriterLock

log = structlog.get_logger()

RETRY_FIRST: Final = 0.02
RETRY_LAST: Final = 1.0
CALL_TIMEOUT: Final = 1.0
CONNECT_TIMEOUT: Final = 3.0


class NotMasterYetError(Exception):
    """The broker at the master's address has no HA address to give."""


class Follower:
    """One pursuit of one master; `target` may change its address and epoch meanwhile."""

    def __init__(
        self,
        client: RemotingClient,
        lock: WriterLock,
        *,
        connect: Callable[[socket.socket, int], MasterConnection],
        prepare: Callable[[], None],
        on_trouble: Callable[[str | None], None],
        on_change: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        """`prepare()` is called with the lock held, before the first byte; `connect(sock, epoch)` makes a connection
        over a connected socket. `on_trouble`: see `Replication`."""
        self.epoch = -1
        self.master_id = -1
        self.address = ""
        self.ha_address = ""
        self.connection: MasterConnection | None = None
        self._client = client
        self._lock = lock
        self._connect, self._prepare = connect, prepare
        self._on_trouble, self._on_change, self._on_lost = on_trouble, on_change, on_lost
        self._task: asyncio.Task[None] | None = None
        self._kick = asyncio.Event()
        self._last_reason: str | None = None
        self._trouble = False

    def aim(self, epoch: int, master_id: int, address: str) -> None:
        """Follow that master; starts, or wakes what waits for its next try."""
        self.epoch, self.master_id, self.address = epoch, master_id, address
        self._kick.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        elif self.connection is not None:
            self.connection.followed(epoch)

    async def stop(self) -> None:
        """When it returns, nothing is appended any more and the lock is free."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        try:
            delay = RETRY_FIRST
            while True:
                self._kick.clear()
                began = asyncio.get_running_loop().time()
                try:
                    await self._once()
                except (OSError, RemotingError, FormatError, TruncationError, StoreError, StorageError) as error:
                    self._failed(error)
                except (NotMasterYetError, ValueError) as error:
                    self._failed(error)
                except Exception:
                    log.exception("replication failed on a bug, trying again", master=self.master_id)
                    delay = RETRY_LAST
                if asyncio.get_running_loop().time() - began > RETRY_LAST:
                    delay = RETRY_FIRST
                try:
                    # not wait_for: in Python 3.11 it loses a cancellation that comes in the turn of the kick
                    async with asyncio.timeout(delay):
                        await self._kick.wait()
                    delay = RETRY_FIRST
                except TimeoutError:
                    delay = min(RETRY_LAST, delay * 2)
        finally:
            self._lock.release()

    async def _once(self) -> None:
        if not self._lock.held:
            self._lock.acquire()
            self._prepare()
        self.ha_address = await self._ask()
        sock = await self._open(*parse_address(self.ha_address))
        try:
            connection = self._connect(sock, self.epoch)
        except BaseException:
            sock.close()
            raise
        self.connection = connection
        try:
            connection.on_aligned = self._going
            connection.start()
            await connection.ended.wait()
        finally:
            connection.end(ConnectionError("stopped"))
            await finish(connection.stopped())
            self.connection = None
            self._on_change()
        self._on_lost()
        raise connection.reason

    async def _ask(self) -> str:
        answer = await self._client.call(
            self.address, request(RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoHeader()), timeout=CALL_TIMEOUT
        )
        if answer.code != ResponseCode.SUCCESS:
            raise NotMasterYetError(f"{self.address} answers {answer.code} to EXCHANGE_BROKER_HA_INFO: {answer.remark}")
        header = decode_header(ExchangeHAInfoHeader, answer.ext_fields or {})
        if not header.master_ha_address:
            raise NotMasterYetError(f"{self.address} is not master yet")
        return header.master_ha_address

    async def _open(self, host: str, port: int) -> socket.socket:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_TIMEOUT):
            (family, kind, protocol, _, address), *_ = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            sock = socket.socket(family, kind, protocol)
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await loop.sock_connect(sock, address)
            except BaseException:
                sock.close()
                raise
        return sock

    def _going(self) -> None:
        """The transfer has begun."""
        log.info("following", master=self.master_id, ha_address=self.ha_address, epoch=self.epoch)
        self._last_reason = None
        if self._trouble:
            self._trouble = False
            self._on_trouble(None)
        self._on_change()

    def _failed(self, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        again = reason == self._last_reason
        self._last_reason = reason
        if isinstance(error, TruncationError):
            if not again:
                log.error("cannot follow the master without an operator", master=self.master_id, reason=reason)
            self._trouble = True
            self._on_trouble(reason)
        elif not again:
            quiet = isinstance(error, NotMasterYetError | WriterLockHeldError)
            (log.info if quiet else log.warning)("not following", master=self.master_id, reason=reason)
