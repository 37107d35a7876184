"""Follows one master until it is stopped: writer lock, 906, connection, and again. Driven by `replication`.

Every failure leads to another attempt: soon at first (a master may not have begun yet), then every `RETRY_LAST`
seconds. Each reason is logged once, when it begins.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final

import structlog

from rocketmq_formats.addresses import parse_address
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.errors import FormatError
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.ha_info import ExchangeHAInfoHeader, GroupName
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_runtime import background, lookups
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError
from rocketmq_sidecar.domain.replication.group_settings import GroupSettings, check_group, differences
from rocketmq_sidecar.domain.replication.truncate import TruncationError
from rocketmq_sidecar.replication.ha_client import MasterConnection
from rocketmq_store.errors import StoreError, WriterLockHeldError
from rocketmq_store.writer_lock import WriterLock

log = structlog.get_logger()

RETRY_FIRST: Final = 0.02
RETRY_LAST: Final = 1.0
CALL_TIMEOUT: Final = 1.0
CONNECT_TIMEOUT: Final = 3.0
PATIENCE: Final = 3.0
"""Seconds without replication until the reason is reported as trouble; a failover takes less."""


class NotMasterYetError(Exception):
    """The broker at the master's address reports no HA address."""


class Follower:
    """Follows one master; `follow` may change its address and epoch."""

    def __init__(
        self,
        client: RemotingClient,
        lock: WriterLock,
        *,
        connect: Callable[[socket.socket, int], MasterConnection],
        prepare: Callable[[], None],
        on_trouble: Callable[[str | None], None],
        on_change: Callable[[], None],
        on_aligned: Callable[[str], None],
        on_lost: Callable[[], None],
        settings: GroupSettings,
        group: GroupName,
    ) -> None:
        """`prepare()` is called with the lock held, before the first byte; `connect(sock, epoch)` builds the connection
        on a connected socket. `on_trouble`, `on_aligned`: see `Replication`."""
        self.epoch = -1
        self.master_id = -1
        self.address = ""
        self.ha_address = ""
        self.audits = False
        """The master serves audit requests: it is a native one."""
        self.introduces = False
        """The master wants to know who connects to its HA address: it is a native one."""
        self.connection: MasterConnection | None = None
        self._client = client
        self._lock = lock
        self._connect, self._prepare = connect, prepare
        self._settings = settings
        self._group = group
        self.differences: tuple[str, ...] = ()
        """From the master's settings, as last compared."""
        self._on_trouble, self._on_change, self._on_lost = on_trouble, on_change, on_lost
        self._tell_aligned = on_aligned
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._retry_now = asyncio.Event()
        self._last_reason: str | None = None
        self._trouble = False
        self._idle_since = self._loop.time()
        """Since when it has replicated nothing."""

    def follow(self, epoch: int, master_id: int, address: str) -> None:
        """Follow that master; starts, or makes the next attempt at once. With controllers another address is the same
        master's, and a connection to it stays; without, it may be another process that has the same id."""
        before = self.address
        self.epoch, self.master_id, self.address = epoch, master_id, address
        self._retry_now.set()
        if self._task is None:
            self._idle_since = self._loop.time()
            self._task = background.start(self._run(), "replication from the master")
        elif self.connection is not None:
            if self._is_another(before):
                self.connection.end(self._moved)
            else:
                self.connection.followed(epoch)

    def _is_another(self, address: str) -> bool:
        """Whether what was reached at `address` may not be the master to follow now."""
        return address != self.address and not self._settings.controllers

    @property
    def _moved(self) -> ConnectionError:
        return ConnectionError(f"name servers list the master at {self.address} now")

    async def stop(self) -> None:
        """When it returns, nothing is appended and the lock is free."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        self._clear_trouble()

    async def _run(self) -> None:
        try:
            delay = RETRY_FIRST
            while True:
                self._retry_now.clear()
                began = self._loop.time()
                try:
                    await self._connect_and_replicate()
                except (OSError, RemotingError, FormatError, TruncationError, StoreError, StorageError) as error:
                    self._failed(error)
                except (NotMasterYetError, ValueError) as error:
                    self._failed(error)
                except Exception:
                    log.exception("replication failed because of a bug, trying again", master=self.master_id)
                    delay = RETRY_LAST
                if self._loop.time() - began > RETRY_LAST:
                    delay = RETRY_FIRST
                try:
                    # not wait_for: in Python 3.11 it loses a cancellation in the turn in which the event is set
                    async with asyncio.timeout(delay):
                        await self._retry_now.wait()
                    delay = RETRY_FIRST
                except TimeoutError:
                    delay = min(RETRY_LAST, delay * 2)
        finally:
            self._lock.release()

    async def _connect_and_replicate(self) -> None:
        if not self._lock.held:
            self._lock.acquire()
            self._prepare()
        address = self.address
        self.ha_address = await self._query_ha_address()
        sock = await self._open(*parse_address(self.ha_address))
        if self._is_another(address):
            sock.close()
            raise self._moved
        try:
            connection = self._connect(sock, self.epoch)
        except BaseException:
            sock.close()
            raise
        self.connection = connection
        try:
            connection.on_aligned = lambda: self._on_aligned(address)
            connection.start()
            await connection.ended.wait()
        finally:
            if connection.aligned:
                self._tell_aligned("")
                self._idle_since = self._loop.time()
            connection.end(ConnectionError("stopped"))
            await background.completed(connection.stopped(), "end of a connection to the master")
            self.connection = None
            self._on_change()
        self._on_lost()
        raise connection.reason

    async def _query_ha_address(self) -> str:
        if not self.address:
            raise NotMasterYetError("no name server lists a master")
        asked = ExchangeHAInfoHeader(cluster_name=self._group.cluster_name, broker_name=self._group.broker_name)
        answer = await self._client.call(
            self.address, request(RequestCode.EXCHANGE_BROKER_HA_INFO, asked), timeout=CALL_TIMEOUT
        )
        if answer.code != ResponseCode.SUCCESS:
            raise NotMasterYetError(f"{self.address} answers {answer.code} to EXCHANGE_BROKER_HA_INFO: {answer.remark}")
        header = decode_header(ExchangeHAInfoHeader, answer.ext_fields or {})
        check_group(self._group, header)
        if not header.master_ha_address:
            raise NotMasterYetError(f"{self.address} is not master yet")
        self.audits, self.introduces = header.log_audit is True, header.ha_introduction is True
        self._compare_settings(header)
        return header.master_ha_address

    def _compare_settings(self, master: ExchangeHAInfoHeader) -> None:
        """Raises `TruncationError`."""
        found = differences(self._settings, master)
        if found and found != self.differences:
            log.warning("settings differ from the master's", master=self.master_id, difference="; ".join(found))
        self.differences = found

    async def _open(self, host: str, port: int) -> socket.socket:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            place, *_ = await lookups.places(host, port)
            sock = socket.socket(place.family, socket.SOCK_STREAM)
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await self._loop.sock_connect(sock, place.address)
            except BaseException:
                sock.close()
                raise
        return sock

    def _on_aligned(self, address: str) -> None:
        """The transfer from the master at `address` has begun."""
        log.info("following", master=self.master_id, ha_address=self.ha_address, epoch=self.epoch)
        self._last_reason = None
        self._clear_trouble()
        self._tell_aligned(address)
        self._on_change()

    def _clear_trouble(self) -> None:
        if self._trouble:
            self._trouble = False
            self._on_trouble(None)

    def _failed(self, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        again = reason == self._last_reason
        self._last_reason = reason
        if isinstance(error, TruncationError):
            if not again:
                log.error("cannot follow the master without an operator", master=self.master_id, reason=reason)
            self._trouble = True
            self._on_trouble(reason)
            return
        if not again:
            quiet = isinstance(error, NotMasterYetError | WriterLockHeldError)
            (log.info if quiet else log.warning)("not following", master=self.master_id, reason=reason)
        if self._loop.time() - self._idle_since > PATIENCE:
            self._trouble = True
            where = f" at {self.address}" if self.address else ""
            self._on_trouble(f"cannot follow master {self.master_id}{where}: {reason}")
