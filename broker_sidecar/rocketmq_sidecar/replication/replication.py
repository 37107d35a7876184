"""Replication of the commit log, both ways: the HA port as master, the HA client as slave, and the epoch file.

The agent drives it: it sets this replica's role and passes on what the broker reports. Callbacks given at construction
report to the agent what the broker and the controllers need. Everything here runs on the event loop's thread; calls may
be made in any order and at any time, each is safe to cancel and to repeat (level-triggered).
Source: rocketmq-all-5.3.3: AutoSwitchHAService.java; RIP-44, section Log replication.
"""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from rocketmq_formats.remoting.controller import EpochEntry, SyncStateSet
from rocketmq_formats.remoting.ha_info import GroupName
from rocketmq_formats.replica_link import Hello, LogState
from rocketmq_formats.replica_link import Replication as Progress
from rocketmq_formats.replication.challenge import group_digest
from rocketmq_formats.replication.introduction import Introduction
from rocketmq_formats.store.given_up import GivenUp
from rocketmq_runtime.background import completed
from rocketmq_runtime.remoting.client import RemotingClient
from rocketmq_sidecar.audit.audit_server import AuditServer
from rocketmq_sidecar.audit.compared_files import FILE_NAME as COMPARED_NAME
from rocketmq_sidecar.audit.compared_files import ComparedFiles
from rocketmq_sidecar.audit.log_audit import LogAudit
from rocketmq_sidecar.domain.replication.group_settings import GroupSettings
from rocketmq_sidecar.domain.replication.ha_challenge import Trust
from rocketmq_sidecar.domain.replication.mastership import Mastership, StaleEpochError, begun, begun_alone
from rocketmq_sidecar.domain.replication.sync_set import SyncSet
from rocketmq_sidecar.domain.replication.truncate import ReplicationError
from rocketmq_sidecar.replication.audit_watch import AuditWatch
from rocketmq_sidecar.replication.follower import Follower
from rocketmq_sidecar.replication.ha_client import MasterConnection
from rocketmq_sidecar.replication.ha_server import HaServer, SlaveLag
from rocketmq_sidecar.replication.master_connector import MasterConnector
from rocketmq_sidecar.replication.replica_log import ReplicaLog
from rocketmq_sidecar.replication.status import StatusReporter, StatusSource
from rocketmq_sidecar.settings import SidecarSettings
from rocketmq_store.log.segments import MappedFiles

__all__ = ["Replication", "ReplicationError", "StaleEpochError"]

log = structlog.get_logger()


class Replication:
    """Both halves of AutoSwitchHA for one replica.

    The order of calls: `start`, `set_broker_id`, `open_log`, then any sequence of `become_master`/`resign` and
    `follow`/`unfollow`, `stop` at the end. `become_master` while following unfollows, `follow` while master resigns.
    """

    def __init__(
        self,
        settings: SidecarSettings,
        *,
        ha_port: int,
        secret: bytes,
        on_proposal: Callable[[SyncStateSet], None],
        on_progress: Callable[[Progress], None],
        on_replicated: Callable[[int, int], None],
        truncate_broker: Callable[[int], Awaitable[None]],
        on_status: Callable[[bytes, bytes], None],
        on_trouble: Callable[[str | None], None] = lambda _: None,
        on_master_lost: Callable[[], None] = lambda: None,
        on_master_heard: Callable[[bool], None] = lambda _: None,
        on_replicas_caught_up: Callable[[int, frozenset[int], bool], None] = lambda _audit_watch, _level, _acked: None,
        on_aligned: Callable[[str], None] = lambda _: None,
        on_caught_up: Callable[[], None] = lambda: None,
        on_repaired: Callable[[int, int], None] = lambda _start, _end: None,
        on_suspected: Callable[[int], None] = lambda _offset: None,
        controllers: Callable[[], str | None] = lambda: None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            ha_port: the port to listen on; 0 uses a free one, see `ha_port`.
            secret: authenticates the replicas of the group to each other; empty: no authentication.
            on_proposal: master: the set to propose to the controllers (1001), this replica included, with the epoch of
                the agreed set that it is based on; void once that set is replaced. Called again when the proposal
                changes, when the controllers refused it (`proposal_refused`), and every checkSyncStateSetPeriod while
                it is open; answer with `set_sync_state_set` or `proposal_refused`.
            on_progress: master: a `replica_link.Replication` for the broker; only the last one of a turn matters.
            on_replicated: slave: `(max_offset, confirm_offset)` for `replica_link.Replicated`; only the last one
                matters. The confirm offset is never above the max offset.
            truncate_broker: slave, before the log is cut at an offset: returns when the broker has durably forgotten
                everything from there on (`Truncate` -> `Truncated`). May be called again with the same offset after a
                crash or a cancellation.
            on_status: `(epochs, ha)`: the JSON bodies of 1007 and 907 (`replica_link.Status`), when they changed, at
                most every 200 ms.
            on_trouble: slave: why this replica cannot follow without an operator (truncation refused, no consistent
                point) or has not been able to for seconds, None when it can again. It keeps trying.
            on_master_lost: slave: the connection to the master ended; another master may have been elected.
            on_master_heard: slave: False when the connected master has been silent for too long to count as alive, True
                when it is heard again.
            on_replicas_caught_up: master: `(watch, brokerIds, acked)`, see `watch_catch_up`.
            on_aligned: slave: the address of the connected master whose log continues this one, before the first
                acknowledgement; empty when that connection ends.
            on_caught_up: slave: everything that the master had when the connection was made is acknowledged; once for
                each connection.
            on_repaired: slave: `(start, end)` for `replica_link.Repaired`.
            on_suspected: `(offset)` for `replica_link.Suspected`.
            controllers: the group of this replica's controllers, None if it is not known.
            wall_clock: seconds since 1970, for the epochs of a log without controllers, and for what is lost.
        """
        self.settings = settings
        self._on_progress, self._on_replicated = on_progress, on_replicated
        self._cut_broker, self._on_trouble = truncate_broker, on_trouble
        self._on_proposal, self._on_master_lost = on_proposal, on_master_lost
        self._on_master_heard = on_master_heard
        self._on_replicas_caught_up = on_replicas_caught_up
        self._on_aligned, self._on_caught_up = on_aligned, on_caught_up
        self._wall_clock = wall_clock
        self._controllers = controllers
        self._log = ReplicaLog(settings)
        self._broker_id = -1
        self._server: HaServer | None = None
        self._client: RemotingClient | None = None
        self._follower: Follower | None = None
        self._group_settings = GroupSettings(settings.group_settings({}))
        group = group_digest(settings.broker_cluster_name, settings.name)
        self._trust = Trust(group, secret, settings.ha_replication_secret_required)
        self._status = StatusReporter(settings, on_status)
        self._ha_port = ha_port
        rate = float(settings.verify_max_bytes_per_second)
        self._auditor = AuditServer(
            settings.commit_log_path, bytes_per_second=rate, end=self._audited_end, on_suspected=on_suspected
        )
        self._audit_watch = AuditWatch(
            LogAudit(
                ComparedFiles(settings.root / COMPARED_NAME),
                bytes_per_second=rate,
                on_repaired=on_repaired,
                on_suspected=on_suspected,
            )
        )
        self._connector = MasterConnector(
            settings,
            self._trust,
            self._log,
            self._audit_watch,
            controllers=controllers,
            truncate_broker=self._truncate_broker,
            on_replicated=self._replicated,
        )

    async def start(self) -> None:
        """Open the HA port, which stays open whatever the role; connections are refused unless master.

        Raises:
            OSError: the port is taken.
            ReplicationError: the epoch file is unreadable, and its `.bak` too; or `.broker.mark` is.
        """
        self._log.load()
        self._audit_watch.audit.load()
        self._client = RemotingClient()
        settings = self.settings
        not_catchup = settings.ha_max_time_slave_not_catchup / 1000
        self._server = HaServer(
            trust=self._trust,
            names=self._names,
            auditor=self._auditor,
            heartbeat_interval=settings.ha_send_heartbeat_interval / 1000,
            housekeeping_interval=settings.ha_housekeeping_interval / 1000,
            not_catchup=not_catchup,
            review_interval=min(settings.check_sync_state_set_period / 1000, not_catchup / 3),
            flow_limit=settings.max_ha_transfer_byte_in_second if settings.ha_flow_control_enable else None,
            on_progress=self._progressed,
            on_proposal=self._on_proposal,
            on_change=self._status_changed,
            on_replicas_caught_up=self._on_replicas_caught_up,
        )
        self._ha_port = self._server.listen(settings.bind_address, self._ha_port)

    async def stop(self, *, orderly: bool = False) -> None:
        """Close everything and release the writer lock, for good. `orderly`: neither this process nor the broker
        appends to the log any longer."""
        await self.unfollow()
        if self._server is not None:
            self._server.close()
            await self._auditor.closed()
        if self._client is not None:
            await self._client.close()
        self._status.close()
        if orderly:
            await self._log.drained()
            await self._log.ended()
        await self._log.close()

    @property
    def ha_port(self) -> int:
        """The port in use; equals `ha_listen_port` unless that was 0."""
        return self._ha_port

    def _names(self) -> Introduction:
        """As master."""
        names = self.settings.broker_cluster_name, self.settings.name
        return Introduction(*names, self._broker_id, self._broker_id, self._controllers())

    def set_broker_id(self, broker_id: int) -> None:
        """This replica's id: at the controllers (from 1), or as configured; needed before a role."""
        self._broker_id = broker_id

    def open_log(self, hello: Hello) -> str | None:
        """The broker has recovered the store: bounds of the log, its confirm offset, the size of files.

        If only the link is new, this sidecar may have appended since the broker's report: then its own end counts.
        Epochs that start after the log's end are dropped from the epoch file: that part of the log was lost.

        Returns:
            None, or what is missing from the log (`log_mark`): this replica must not be elected while it counts as in
            sync; call `accept_loss` when it no longer does.

        Raises:
            ReplicationError: replication still follows a master. StorageError: epochs or mark cannot be written.
        """
        if self._follower is not None:
            raise ReplicationError("the broker reports a recovered log while this sidecar writes to it")
        self._audit_watch.on_log_state(hello.log)
        self._group_settings = GroupSettings(self.settings.group_settings(hello.settings))
        identified = self.settings.enable_controller_mode and self._broker_id >= 1
        lost = self._log.open_log(hello, identified=identified)
        self._status_changed()
        return lost

    def accept_loss(self) -> None:
        """The group continues without what `open_log` found missing: what is there is this replica's log. Raises
        `StorageError`."""
        self._log.accept_loss(refresh=self._follower is None)

    @property
    def unproven(self) -> str | None:
        """Why, after `open_log`, the log may lack what was acknowledged; None if it does not."""
        return self._log.unproven

    def mark_proven(self) -> None:
        """The log has all that a master has, or this replica was elected."""
        self._log.mark_proven(self._followed_epoch, self._now_millis)

    @property
    def _followed_epoch(self) -> int:
        """The master's, of which the log may have no bytes yet."""
        followed = -1 if self._follower is None else self._follower.epoch
        return max(followed, self.last_epoch)

    @property
    def given_up(self) -> tuple[GivenUp, ...]:
        """Acknowledged messages that are lost, see `ReplicaLog`."""
        return self._log.given_up

    def log_state(self, state: LogState) -> None:
        """The broker has checked the log's bytes: a slave repairs damage."""
        self._audit_watch.on_log_state(state)

    async def become_master(self, epoch: int, max_offset: int, sync_state_set: SyncStateSet) -> None:
        """Master of `epoch`, which begins at `max_offset` (the broker's `Prepared`: a whole record's end).

        When it returns, the epoch is in the epoch file, durably, and slaves are served. If this replica is master
        of the epoch before, the new one begins and connections stay.

        Raises:
            StaleEpochError: an epoch newer than `epoch` is in the file.
            StorageError: the epoch file, or a note of lost messages, could not be written; the role does not change.

        Without controllers the log gets an epoch of its own in place of `epoch`.
        """
        server, files = self._ready()
        await self.unfollow()
        if server.mastership is not None and not server.mastership.continues_in(epoch):
            await self.resign()
        before = self._log.epoch_store.epochs
        if self.settings.enable_controller_mode:
            epochs = begun(before, epoch, max_offset)
        else:
            epochs = begun_alone(before, max_offset, self._wall_clock())
        await completed(self._log.epoch_store.save(epochs), "epoch file")
        await completed(self._log.leads(max_offset, self._now_millis), "note of lost messages")
        files.refresh()
        self._log.max_offset = max_offset
        loop_time = asyncio.get_running_loop().time()
        strict = self.settings.durability == "strict"
        sync_set = SyncSet(self._broker_id, sync_state_set, loop_time, strict=strict)
        master = server.mastership
        if master is None:
            settings = self.settings
            master = Mastership(
                epoch=epoch,
                epochs=epochs,
                max_offset=max_offset,
                min_offset=files.min_offset,
                confirm=min(self._log.confirm_offset, max_offset),  # less only within a record: see `cut_tail`
                sync_set=sync_set,
                rule=settings.ack_rule,
                file_size=files.file_size,
                batch_size=settings.ha_transfer_batch_size,
                sync_flush=settings.flush_disk_type == "SYNC_FLUSH",
                record_end=self._log.record_end,
            )
        else:
            master.renew(epoch, epochs, max_offset, sync_set)
        log.info("master", epoch=epoch, epochs=str(epochs), max_offset=max_offset, sync_set=sorted(sync_set.members))
        self._audit_watch.audit.has_compared_first = True  # the others compare theirs with it
        server.begin(master, files)

    async def resign(self) -> None:
        """Step down as master: every slave's connection is closed when it returns. Does nothing if not master."""
        if self._server is not None and self._server.mastership is not None:
            self._log.confirm_offset = self._server.mastership.confirm
            self._server.end("no longer master")
            self._status_changed()

    async def follow(self, epoch: int, master_broker_id: int, master_address: str) -> None:
        """Replicate from the master at `master_address` (its broker port; 906 asks it for its HA address).

        Returns at once; connects, truncates, replicates and reconnects in the background until `unfollow`. The same
        arguments again: nothing happens; another address of the same master: used for the next connection, which
        without controllers is made at once. The writer lock is acquired before anything is written to the log, as soon
        as the broker releases it.
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
                connect=self._connect,
                prepare=self._log.prepare,
                on_trouble=self._on_trouble,
                on_change=self._status_changed,
                on_aligned=self._on_aligned,
                on_lost=self._on_master_lost,
                settings=self._group_settings,
                group=GroupName(self.settings.broker_cluster_name, self.settings.name),
            )
        self._follower.follow(epoch, master_broker_id, master_address)
        self._status_changed()

    async def unfollow(self) -> None:
        """Stop replicating; when it returns, nothing appends and the writer lock is released. Does nothing if not
        following. What arrived stays in the log, including a last incomplete record."""
        if self._follower is not None:
            await self._follower.stop()
            await self._audit_watch.stop()
            self._follower = None
            self._status_changed()

    def appended(self, max_offset: int, flushed_offset: int) -> None:
        """Master: the broker's log reaches `max_offset`, on disk `flushed_offset`; slaves are sent it at once.

        Also for `Released.max_offset`, before `follow`: a slave needs the real end of the log."""
        server = self._server
        if self._follower is not None or server is None:
            return
        if server.mastership is None:
            # less than known here if the broker has cut a torn record on becoming master
            self._log.max_offset = max_offset
            return
        if max_offset > self._log.max_offset:
            self._log.max_offset = max_offset
            server.appended(max_offset)
        server.flushed(flushed_offset)
        self._log.extended(flushed_offset)

    def retained(self, min_offset: int) -> None:
        """The broker deleted expired files: drop epochs that end at or before `min_offset`."""
        if self._log.files is not None and self._follower is None:
            self._log.files.refresh()  # while following, a thread may be cutting the log
        master = None if self._server is None else self._server.mastership
        if master is not None:
            master.min_offset = min_offset
            master.epochs = master.epochs.truncate_prefix(min_offset)
        elif self._follower is not None and self._follower.connection is not None:
            session = self._follower.connection.session
            session.epochs = session.epochs.truncate_prefix(min_offset)
        self._log.in_background(self._log.epoch_store.truncate_prefix(min_offset))
        self._status_changed()

    def set_sync_state_set(self, agreed: SyncStateSet) -> None:
        """Master: the controllers agreed (1001, 1004, 1008). Ignored unless its epoch is newer than the last one."""
        if self._server is None or self._server.mastership is None:
            return
        if self._server.mastership.adopt(agreed, asyncio.get_running_loop().time()):
            self._server.agreed()

    def proposal_refused(self, proposal: SyncStateSet, dead: int | None) -> None:
        """Master: the controllers certainly refused `proposal`, the object that `on_proposal` got, and those before it;
        `dead`: because of this replica. Ignored unless it is the last one. Not for a lost answer: until the result is
        known, messages need copies on the members of both sets."""
        if self._server is None or self._server.mastership is None:
            return
        if self._server.mastership.sync_set.proposal_refused(proposal, dead):
            self._server.agreed()

    def copied(self, epoch: int, joins: frozenset[int]) -> None:
        """Master: the broker's `Copied`."""
        if self._server is not None and self._server.mastership is not None:
            self._server.copied(epoch, joins)

    def watch_catch_up(self, watch: int, offset: int | None) -> None:
        """Master: report to `on_replicas_caught_up`, at once and whenever that changes, which slaves acknowledged
        everything up to `offset` (None: the present end of the log), and whether all copies that sends need are there;
        until the next call, or the mastership's end. `watch` 0: stop."""
        if self._server is not None:
            self._server.watch_catch_up(watch, offset)

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
    def noted_offset(self) -> int:
        """Confirmed up to here, as noted on disk; above `max_offset` if the log lost what it had."""
        return max(self.confirm_offset, self._log.acked)

    @property
    def min_offset(self) -> int:
        """Start of the log; 0 while it is not known."""
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
    def in_sync(self) -> int | None:
        """Master: the number of replicas, this one included, that are in sync and connected; None of a slave."""
        master = None if self._server is None else self._server.mastership
        return None if master is None else master.in_sync

    @property
    def slaves(self) -> tuple[SlaveLag, ...]:
        """Master: the slaves that are connected."""
        return () if self._server is None else self._server.slaves

    @property
    def differences(self) -> tuple[str, ...]:
        """Slave: its settings that differ from its native master's, with both values, as last compared."""
        return () if self._follower is None else self._follower.differences

    # Inside

    def _audited_end(self) -> int:
        master = None if self._server is None else self._server.mastership
        return 0 if master is None else master.max_offset

    def _ready(self) -> tuple[HaServer, MappedFiles]:
        if self._server is None or self._log.files is None or self._broker_id < 0:
            raise ReplicationError("a role before start, set_broker_id and open_log")
        return self._server, self._log.files

    @property
    def _now_millis(self) -> int:
        return round(1000 * self._wall_clock())

    def _progressed(self) -> None:
        assert self._server is not None
        master = self._server.mastership
        if master is not None:
            self._log.acknowledged(master.acked)
            self._on_progress(
                Progress(
                    master.epoch,
                    master.acked,
                    master.confirm,
                    master.in_sync,
                    master.sync_set.union,
                    dict(master.sync_set.joins) if master.sync_set.strict else {},
                    master.officials,
                )
            )

    def _replicated(self, max_offset: int, confirm_offset: int) -> None:
        self._log.max_offset, self._log.confirm_offset = max_offset, confirm_offset
        self._log.acknowledged(confirm_offset)
        self._on_replicated(max_offset, confirm_offset)
        self._log.extended(max_offset, refresh=False)
        self._status_changed()

    async def _truncate_broker(self, offset: int) -> None:
        await self._log.lower_mark(offset)
        self._audit_watch.audit.cut(offset)
        await self._cut_broker(offset)

    def _connect(self, sock: socket.socket, epoch: int) -> MasterConnection:
        assert self._follower is not None
        connection = self._connector.connect(sock, epoch, self._follower, self._broker_id)
        connection.on_caught_up, connection.on_heard = self._caught_up, self._on_master_heard
        return connection

    def _caught_up(self) -> None:
        self._log.caught_up(self._followed_epoch, self._now_millis)
        self._on_caught_up()
        self._audit_watch.caught_up()

    def _status_changed(self) -> None:
        self._status.changed(self._status_source)

    def _status_source(self) -> StatusSource:
        return StatusSource(
            self._broker_id, self._log.epoch_store.epochs, self._log.max_offset, self._server, self._follower
        )
