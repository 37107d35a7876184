"""The composition root: builds one broker from its configuration, starts it in order, ends it in order.

Start: the store is recovered before anything answers; the ports are open before the link to the sidecar, which may make
this replica master at once. End: accepted requests are answered, then the group is left, then the store is closed.
"""

import asyncio
from collections.abc import Collection

import structlog

from rocketmq_broker.core import BrokerCore
from rocketmq_broker.domain.role import Role
from rocketmq_broker.group_watch import GroupWatch
from rocketmq_broker.log_topics import LogTopics
from rocketmq_broker.registration import Registrar
from rocketmq_broker.replica.log_scrubber import LogScrubber
from rocketmq_broker.replica.replica import Replica
from rocketmq_broker.services import Services
from rocketmq_broker.settings import BrokerSettings
from rocketmq_runtime.remoting.server import RemotingServer, ServerLimits, server_memory
from rocketmq_store.flush import Flusher
from rocketmq_store.model import Recovered

log = structlog.get_logger(__name__)


class BrokerApp:
    """One broker process."""

    def __init__(self, settings: BrokerSettings) -> None:
        """Wire everything; nothing is opened yet. Needs a running event loop."""
        self.settings = settings
        self.stopping = asyncio.Event()
        self.fatal: OSError | None = None
        self._opened = self._acting = False
        self.core = core = BrokerCore(settings)
        self.address = core.address
        self.store, self.role, self.topics, self.tables = core.store, core.role, core.topics, core.tables
        self.flusher = Flusher(
            core.store,
            interval_ms=settings.flush_interval_commit_log,
            on_flushed=self._on_flushed,
            on_deleted=self._on_deleted,
            on_failed=self._on_failed,
        )
        self.replica = Replica(
            settings=settings,
            address=core.address,
            store=core.store,
            flusher=self.flusher,
            role=core.role,
            waiting=core.waiting,
            on_role_change=self._on_role_change,
            on_visible=self._on_visible,
            on_cut=self._on_cut,
            on_master_known=self._on_serving,
            traffic=core.traffic,
        )
        self.services = Services(core, self.replica)
        self.log_scrubber = LogScrubber(
            core.store,
            core.traffic,
            bytes_per_second=settings.log_check_bytes_per_second,
            on_change=self.replica.on_log_state,
            on_readable=self.services.on_visible,
        )
        self.replica.on_repaired, self.replica.on_suspected = self.log_scrubber.repaired, self.log_scrubber.suspect
        self.log_topics = LogTopics(
            settings=settings, role=core.role, store=core.store, topics=core.topics, tables=core.tables
        )
        self.services.on_due(self.log_topics.on_due)
        self.registrar = Registrar(
            settings=settings,
            role=core.role,
            topics=core.topics,
            permission=core.permission,
            client=core.client,
            address=core.address,
            ha_address=core.ha_address,
        )
        self.replica.unregistered = self.registrar.unregistered
        self.group_watch = GroupWatch(
            settings=settings,
            role=core.role,
            topics=core.topics,
            members=core.members,
            client=core.client,
            address=core.address,
            on_change=self._on_registered_members,
            on_answer=self.replica.on_registered if not settings.enable_controller_mode else lambda _: None,
        )
        core.processor_table.register(self.group_watch.processors)
        limits = ServerLimits(max_connections=settings.max_connections)
        memory = server_memory(limits)
        self.servers = [
            RemotingServer(
                core.processor_table, host=settings.bind_address, port=port, key=key, limits=limits, memory=memory
            )
            for key, port in (("listenPort", settings.listen_port), ("listenPort - 2", settings.fast_port))
        ]

    async def start(self) -> None:
        """Recover the store, open the ports, connect to the sidecar.

        Raises:
            RecoveryInterruptedError: `stopping` was set before the store was recovered.
            StoreError, TableDamagedError: damaged files; the text names the way out.
            StorageError: a table that cannot be written.
            OSError: the disk, or a port that cannot be bound.
        """
        (self.settings.root / "config").mkdir(parents=True, exist_ok=True)
        self.core.load_tables()
        recovered = await self._recover()
        log.info(
            "store recovered",
            min_offset=recovered.min_offset,
            max_offset=recovered.max_offset,
            confirm_offset=recovered.confirm_offset,
            clean=recovered.clean,
        )
        if recovered.max_offset > recovered.min_offset and self.core.without_tables:
            log.warning(
                "the log has messages, and tables are missing: if this replica becomes master, its slaves lose theirs"
                " too; stop it and copy the folder from another replica",
                folder=str(self.settings.root / "config"),
            )
        self._opened = True
        await self.tables.log_cut(recovered.max_offset)
        self.flusher.start()
        self.log_scrubber.start(recovered.check_from)
        self.services.start()
        for server in self.servers:
            await server.start()
        self.replica.start()
        self.registrar.start()
        self.group_watch.start()
        log.info("broker started", name=self.settings.name, address=self.address)

    async def stop(self) -> None:
        """Refuse new sends, answer the waiting ones, leave, close; call it after `start` returned or failed.
        Only the first call does anything."""
        if self.services.sends.stopping:
            return
        self.services.sends.stopping = True
        if not await self.core.waiting.drained(self.settings.shutdown_wait_ms):
            log.warning("sends still wait for their copies, they are refused", count=len(self.core.waiting))
        await self.group_watch.stop()
        await self.registrar.stop()
        await self.replica.stop()
        for server in self.servers:
            await server.stop()
        await self.services.stop()
        await self.core.topics_file.close()
        await self.core.permission_file.close()
        await self.core.client.close()
        await self.flusher.stop()
        await self.log_scrubber.stop()
        if self._opened:
            self._close_store()
        log.info("broker stopped")

    async def _recover(self) -> Recovered:
        """In a thread: it may take minutes, in which a signal must be obeyed."""
        self.store.writer.acquire()
        opening = asyncio.get_running_loop().run_in_executor(None, self.store.open, self.stopping.is_set)
        try:
            return await asyncio.shield(opening)
        finally:
            if not opening.done():
                self.stopping.set()
                await asyncio.wait([opening])
                opening.exception()  # marked as retrieved: most likely the interruption that was asked for
            self.store.writer.release()

    def _close_store(self) -> None:
        try:
            self.store.close()
        except OSError as error:
            log.error("store not closed cleanly: the next start recovers it as after a crash", reason=str(error))

    def _on_role_change(self) -> None:
        if self.role.role is Role.MASTER:
            self.topics.add_built_in()
            self.log_topics.take_over()
            # the name servers let the table with the higher state version win; its time stays that of the last change
            self.topics.next_version(self.role.epoch, self.topics.version.timestamp)
        self.services.on_role_change()
        self.registrar.register_now()
        self._on_serving()

    def _on_registered_members(self) -> None:
        if self.settings.enable_slave_acting_master:  # strict locks need the members too
            self.role.least_registered = self.core.members.least_id
            self._on_serving()

    def _on_serving(self) -> None:
        """Whether this replica serves consumers may be different now."""
        if self.role.acting != self._acting:
            self._acting = self.role.acting
            if not self._acting:
                self.tables.acting_ended()
            log.warning(
                "acting master: serves consumers until there is a master" if self._acting else "no longer acting"
            )
            self.services.on_acting()
        self.services.pulls.on_role_change()

    def _on_visible(self, queues: Collection[tuple[str, int]]) -> None:
        if self.role.role is Role.MASTER:
            self.log_topics.on_visible(queues)
        self.services.on_visible(queues)

    async def _on_cut(self, offset: int) -> None:
        self.log_scrubber.bytes_removed(behind=offset)
        await self.services.log_cut(offset)

    def _on_flushed(self, offset: int) -> None:
        self.replica.on_flushed(offset)  # the replica is built with the flusher

    def _on_deleted(self, min_offset: int) -> None:
        self.log_scrubber.bytes_removed(before=min_offset)
        self.replica.on_deleted(min_offset)

    def _on_failed(self, error: OSError) -> None:
        """Only a new start puts on disk what did not get there."""
        self.fatal = error
        self.stopping.set()
