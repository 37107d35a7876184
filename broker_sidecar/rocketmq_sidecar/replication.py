"""Replication of the commit log, both ways: the HA port as master, the HA client as slave, and the epoch file.

The agent drives it: it says which role this replica has and what the broker reports, and is told, through the callbacks
given at construction, what to pass on to the broker and to the controllers. Everything here runs on the event loop's
thread; calls may be made in any order and at any time, each is safe to cancel and to repeat (level-triggered).
Source: ha reference; RIP-44 replication.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from rocketmq_formats.remoting.controller import EpochEntry, SyncStateSet
from rocketmq_formats.replica_link import Hello
from rocketmq_formats.replica_link import Replication as Progress
from rocketmq_formats.replication.frames import SlaveHandshake
from rocketmq_runtime.client import RemotingClient
from rocketmq_sidecar.domain.confirm import AckRule
from rocketmq_sidecar.domain.ha_master import Mastership, begun
from rocketmq_sidecar.domain.ha_slave import SlaveSession
from rocketmq_sidecar.domain.replication_errors import ReplicationError, StaleEpochError
from rocketmq_sidecar.domain.sync_set import SyncSet
from rocketmq_sidecar.finish import finish
from rocketmq_sidecar.follower import Follower
from rocketmq_sidecar.ha_client import MasterConnection
from rocketmq_sidecar.ha_server import HaServer, SlaveLag
from rocketmq_sidecar.replica_log import ReplicaLog
from rocketmq_sidecar.replication_settings import ReplicationSettings
from rocketmq_sidecar.replication_status import StatusReporter, View
from rocketmq_store.segments import MappedFiles

__all__ = ["Replication", "ReplicationError", "ReplicationSettings", "StaleEpochError"]

log = structlog.get_logger()


class Replication:
    """Both halves of AutoSwitchHA for one replica.

    The order of a life: `start`, `identified`, `opened`, then any sequence of `become_master`/`resign` and
    `follow`/`unfollow`, `stop` at the end. `become_master` while following unfollows, `follow` while master resigns.
    """

    def __init__(
        self,
        settings: ReplicationSettings,
        *,
        on_sync_set_wanted: Callable[[SyncStateSet], None],
        on_progress: Callable[[Progress], None],
        on_replicated: Callable[[int, int], None],
        truncate_broker: Callable[[int], Awaitable[None]],
        on_status: Callable[[bytes, bytes], None],
        on_trouble: Callable[[str | None], None] = lambda _: None,
        on_master_lost: Callable[[], None] = lambda: None,
        on_level: Callable[[int, frozenset[int], bool], None] = lambda _watch, _level, _acked: None,
    ) -> None:
        """
        Args:
            on_sync_set_wanted: master: the set that the controllers should agree to (1001), this replica included,
                with the epoch of the agreed set that it was formed from: not to be asked for once that is replaced.
                Called again when the wish changes, when the controllers refused (`sync_set_refused`), and every
                checkSyncStateSetPeriod while the wish stands; answer with `set_sync_state_set` or `sync_set_refused`.
            on_progress: master: a `replica_link.Replication` for the broker; a level, send the last one of a turn.
            on_replicated: slave: `(max_offset, confirm_offset)` for `replica_link.Replicated`; a level. Confirmed is
                never more than max.
            truncate_broker: slave, before the log is cut at an offset: returns when the broker has forgotten,
                durably, everything at and behind it (`Truncate` -> `Truncated`). May be called again with the same
                offset after a crash or a cancellation.
            on_status: `(epochs, ha)`: the JSON bodies of 1007 and 907 (`replica_link.Status`), when they changed, at
                most every 200 ms.
            on_trouble: slave: why this replica cannot follow without an operator (truncation refused, no consistent
                point), None when it can again. It goes on trying.
            on_master_lost: slave: the connection to the master ended; there may be another master already.
            on_level: master: `(watch, brokerIds, acked)` as `watch_level` asked for.
        """
        self.settings = settings
        self._on_progress, self._on_replicated = on_progress, on_replicated
        self._cut_broker, self._on_trouble = truncate_broker, on_trouble
        self._on_sync_set_wanted, self._on_master_lost = on_sync_set_wanted, on_master_lost
        self._on_level = on_level
        self._log = ReplicaLog(settings)
        self._broker_id = -1
        self._server: HaServer | None = None
        self._client: RemotingClient | None = None
        self._follower: Follower | None = None
        self._status = StatusReporter(settings, on_status)
        self._ha_port = settings.ha_listen_port

    async def start(self) -> None:
        """Open the HA port, which stays open whatever the role; connections are refused unless master.

        Raises:
            OSError: the port is taken.
            ReplicationError: the epoch file is unreadable, and its `.bak` too; or `.broker.mark` is.
        """
        self._log.load()
        self._client = RemotingClient()
        settings = self.settings
        not_catchup = settings.ha_max_time_slave_not_catchup / 1000
        self._server = HaServer(
            heartbeat_interval=settings.ha_send_heartbeat_interval / 1000,
            housekeeping_interval=settings.ha_housekeeping_interval / 1000,
            not_catchup=not_catchup,
            review_interval=min(settings.check_sync_state_set_period / 1000, not_catchup / 3),
            flow_limit=settings.max_ha_transfer_byte_in_second if settings.ha_flow_control_enable else None,
            on_progress=self._progressed,
            on_wish=self._on_sync_set_wanted,
            on_change=self._changed,
            on_level=self._on_level,
        )
        self._ha_port = self._server.listen(settings.listen_host, settings.ha_listen_port)

    async def stop(self) -> None:
        """Close everything and release the writer lock. Not to be started again."""
        await self.unfollow()
        if self._server is not None:
            self._server.close()
        if self._client is not None:
            await self._client.close()
        self._status.close()
        await self._log.close()

    @property
    def ha_port(self) -> int:
        """The port in use; equals `ha_listen_port` unless that was 0."""
        return self._ha_port

    def identified(self, broker_id: int) -> None:
        """This replica's id at the controllers (from 1), once it is known; needed before a role."""
        self._broker_id = broker_id

    def opened(self, hello: Hello) -> str | None:
        """The broker (again) recovered the store: bounds of the log, its confirm offset, the size of files.

        Where only the link was new, this sidecar may have appended since the broker looked: then its own end counts.
        Epochs that start behind the log's end are dropped from the epoch file: that part of the log was lost.

        Returns:
            None, or what is missing from the log (`log_mark`): this replica must not be elected while it is counted as
            in sync; `forgiven` when it is not any more.

        Raises:
            ReplicationError: it is being followed still. StorageError: epochs or mark cannot be written.
        """
        if self._follower is not None:
            raise ReplicationError("the broker reports a recovered log while this sidecar writes to it")
        lost = self._log.opened(hello, identified=self._broker_id >= 1)
        self._changed()
        return lost

    def forgiven(self) -> None:
        """The group goes on without what `opened` found missing: what is there is this replica's log. Raises
        `StorageError`."""
        self._log.forgiven(refresh=self._follower is None)

    async def become_master(self, epoch: int, max_offset: int, sync_state_set: SyncStateSet) -> None:
        """Master of `epoch`, which begins at `max_offset` (the broker's `Prepared`: a whole record's end).

        When it returns the epoch is in the epoch file, durably, and slaves are served. Already master: the new epoch
        begins, connections stay.

        Raises:
            StaleEpochError: an epoch younger than `epoch` is in the file.
            StorageError: the epoch file could not be written; no role is taken.
        """
        server, files = self._ready()
        await self.unfollow()
        epochs = begun(self._log.epoch_store.epochs, epoch, max_offset)
        await finish(self._log.epoch_store.save(epochs))
        files.refresh()
        self._log.max_offset = max_offset
        loop_time = asyncio.get_running_loop().time()
        sync_set = SyncSet(self._broker_id, sync_state_set, loop_time)
        master = server.mastership
        if master is None:
            settings = self.settings
            master = Mastership(
                epoch=epoch,
                epochs=epochs,
                max_offset=max_offset,
                min_offset=files.min_offset,
                confirm=min(self._log.confirm_offset, max_offset),
                sync_set=sync_set,
                rule=AckRule(
                    strict=settings.durability == "strict",
                    all_ack_in_sync_state_set=settings.all_ack_in_sync_state_set,
                    in_sync_replicas=settings.in_sync_replicas,
                    min_in_sync_replicas=settings.min_in_sync_replicas,
                    enable_auto_in_sync_replicas=settings.enable_auto_in_sync_replicas,
                ),
                file_size=files.file_size,
                batch_size=settings.ha_transfer_batch_size,
                sync_flush=settings.flush_disk_type == "SYNC_FLUSH",
            )
        else:
            master.renew(epoch, epochs, max_offset, sync_set)
        log.info("master", epoch=epoch, epochs=str(epochs), max_offset=max_offset, sync_set=sorted(sync_set.members))
        server.begin(master, files)

    async def resign(self) -> None:
        """Stop being master: every slave's connection is closed when it returns. Harmless if not master."""
        if self._server is not None and self._server.mastership is not None:
            self._log.confirm_offset = self._server.mastership.confirm
            self._server.end("not master any more")
            self._changed()

    async def follow(self, epoch: int, master_broker_id: int, master_address: str) -> None:
        """Replicate from the master at `master_address` (its broker port: it is asked for its HA address by 906).

        Returns at once; connects, truncates, replicates and reconnects for ever in the background. The same
        arguments again: nothing happens; another address of the same master: goes there at the next connect.
        The writer lock is taken before anything is written to the log, as soon as the broker lets go of it.
        """
        self._ready()
        await self.resign()
        if self._follower is not None and self._follower.master_id != master_broker_id:
            await self.unfollow()
        if self._follower is None:
            assert self._client is not None
            self._follower = Follower(
                self._client,
                self._log.lock,
                connect=self._connection,
                prepare=self._log.prepare,
                on_trouble=self._on_trouble,
                on_change=self._changed,
                on_lost=self._on_master_lost,
            )
        self._follower.aim(epoch, master_broker_id, master_address)
        self._changed()

    async def unfollow(self) -> None:
        """Stop replicating; when it returns nothing appends any more and the writer lock is released. Harmless if not
        following. What arrived stays in the log, a last incomplete record too."""
        if self._follower is not None:
            await self._follower.stop()
            self._follower = None
            self._changed()

    def appended(self, max_offset: int, flushed_offset: int) -> None:
        """Master: the broker's log reaches to `max_offset`, on disk to `flushed_offset`; slaves get it at once.

        Also for `Released.max_offset`, before `follow`: what a slave has to know is where the log really ends."""
        server = self._server
        if self._follower is not None or server is None:
            return
        if server.mastership is None:
            # less than we knew if the broker has cut a torn record on becoming master
            self._log.max_offset = max_offset
            return
        if max_offset > self._log.max_offset:
            self._log.max_offset = max_offset
            server.appended(max_offset)
        server.flushed(flushed_offset)
        self._log.grown(flushed_offset)

    def retained(self, min_offset: int) -> None:
        """The broker deleted expired files: epochs that end at or before `min_offset` are forgotten."""
        if self._log.files is not None and self._follower is None:
            self._log.files.refresh()  # while following, a thread may be cutting the log
        master = None if self._server is None else self._server.mastership
        if master is not None:
            master.min_offset = min_offset
            master.epochs = master.epochs.truncate_prefix(min_offset)
        elif self._follower is not None and self._follower.connection is not None:
            session = self._follower.connection.session
            session.epochs = session.epochs.truncate_prefix(min_offset)
        self._log.later(self._log.epoch_store.truncate_prefix(min_offset))
        self._changed()

    def set_sync_state_set(self, agreed: SyncStateSet) -> None:
        """Master: the controllers agreed (1001, 1004, 1008). Ignored unless its epoch is newer than the last one."""
        if self._server is None or self._server.mastership is None:
            return
        if self._server.mastership.adopt(agreed, asyncio.get_running_loop().time()):
            self._server.agreed()

    def sync_set_refused(self) -> None:
        """Master: the controllers definitely refused the last wish. Not for a lost answer: until the outcome is known,
        copies on the members of both sets are asked for."""
        if self._server is not None and self._server.mastership is not None:
            self._server.mastership.sync_set.refused()
            self._server.agreed()

    def watch_level(self, watch: int, offset: int | None) -> None:
        """Master: tell `on_level`, at once and whenever that changes, which slaves acknowledged everything up to
        `offset` (None: the log's end as it is now), and whether all copies are there that sends ask for; until the next
        call, or the mastership's end. `watch` 0: no more."""
        if self._server is not None:
            self._server.watch_level(watch, offset)

    @property
    def max_offset(self) -> int:
        """End of the log in bytes, for heartbeats: as master the broker's, as slave what was received."""
        return self._log.max_offset

    @property
    def confirm_offset(self) -> int:
        """What consumers may see."""
        master = None if self._server is None else self._server.mastership
        return self._log.confirm_offset if master is None else master.confirm

    @property
    def min_offset(self) -> int:
        """Begin of the log; 0 while it is not known."""
        return 0 if self._log.files is None else self._log.files.min_offset

    @property
    def file_size(self) -> int:
        """Bytes of each of the log's files; 0 while it is not known."""
        return 0 if self._log.files is None else self._log.files.file_size

    @property
    def epochs(self) -> tuple[EpochEntry, ...]:
        """The epoch file; the last one's end is `max_offset`."""
        entries = self._log.epoch_store.epochs.entries
        return (*entries[:-1], *(msgspec.structs.replace(last, end_offset=self.max_offset) for last in entries[-1:]))

    @property
    def last_epoch(self) -> int:
        """Last epoch of the epoch file, -1 if it has none; for heartbeats."""
        return self._log.epoch_store.epochs.last_epoch

    @property
    def slaves(self) -> tuple[SlaveLag, ...]:
        """Master: the slaves that are connected."""
        return () if self._server is None else self._server.slaves

    # Inside

    def _ready(self) -> tuple[HaServer, MappedFiles]:
        if self._server is None or self._log.files is None or self._broker_id < 1:
            raise ReplicationError("a role before start, identified and opened")
        return self._server, self._log.files

    def _progressed(self) -> None:
        assert self._server is not None
        master = self._server.mastership
        if master is not None:
            self._on_progress(Progress(master.epoch, master.acked, master.confirm, master.sync_set.size))

    def _replicated(self, max_offset: int, confirm_offset: int) -> None:
        self._log.max_offset, self._log.confirm_offset = max_offset, confirm_offset
        self._on_replicated(max_offset, confirm_offset)
        self._log.grown(max_offset, refresh=False)
        self._changed()

    async def _truncate_broker(self, offset: int) -> None:
        await self._log.lower_mark(offset)
        await self._cut_broker(offset)

    def _connection(self, sock: socket.socket, epoch: int) -> MasterConnection:
        assert self._log.files is not None
        self._log.files.refresh()
        settings = self.settings
        session = SlaveSession(
            SlaveHandshake(self._broker_id, settings.sync_from_last_file, settings.async_learner),
            followed_epoch=epoch,
            epochs=self._log.epoch_store.epochs,
            min_offset=self._log.files.min_offset,
            max_offset=self._log.max_offset,
            confirm_offset=self._log.confirm_offset,
            file_size=self._log.files.file_size,
        )
        return MasterConnection(
            sock,
            session,
            files=self._log.files,
            epoch_store=self._log.epoch_store,
            truncate_broker=self._truncate_broker,
            on_replicated=self._replicated,
            strict=settings.durability == "strict",
            sync_flush=settings.flush_disk_type == "SYNC_FLUSH",
            heartbeat_interval=settings.ha_send_heartbeat_interval / 1000,
            housekeeping_interval=settings.ha_housekeeping_interval / 1000,
        )

    def _changed(self) -> None:
        self._status.changed(self._view)

    def _view(self) -> View:
        return View(self._broker_id, self._log.epoch_store.epochs, self._log.max_offset, self._server, self._follower)
