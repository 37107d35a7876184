"""Builds the slave's connections to its master: replication, and audit requests. Used by `replication`, for `follower`.

All of them begin with the same challenge, if the group has a secret. In replication from a native master the
introduction comes next.
"""

import secrets
import socket
from collections.abc import Awaitable, Callable

from rocketmq_formats.challenge import NONCE_SIZE
from rocketmq_formats.replication.frames import SlaveHandshake
from rocketmq_formats.replication.introduction import Introduction
from rocketmq_sidecar.audit.audit_link import AuditLink
from rocketmq_sidecar.audit.ha_reader import HaReader
from rocketmq_sidecar.domain.replication.ha_challenge import SlaveChallenge, Trust
from rocketmq_sidecar.domain.replication.ha_introduction import SlaveIntroduction
from rocketmq_sidecar.domain.replication.ha_slave import SlaveSession
from rocketmq_sidecar.replication.audit_watch import AuditWatch
from rocketmq_sidecar.replication.follower import Follower
from rocketmq_sidecar.replication.ha_client import MasterConnection
from rocketmq_sidecar.replication.replica_log import ReplicaLog
from rocketmq_sidecar.settings import SidecarSettings


class MasterConnector:
    def __init__(
        self,
        settings: SidecarSettings,
        trust: Trust,
        replica_log: ReplicaLog,
        audit_watch: AuditWatch,
        *,
        controllers: Callable[[], str | None],
        truncate_broker: Callable[[int], Awaitable[None]],
        on_replicated: Callable[[int, int], None],
    ) -> None:
        """`controllers` as in `Replication`, `truncate_broker` and `on_replicated` as in `MasterConnection`."""
        self._settings, self._trust = settings, trust
        self._log, self._audit_watch = replica_log, audit_watch
        self._controllers = controllers
        self._truncate_broker, self._on_replicated = truncate_broker, on_replicated
        self._last: MasterConnection | None = None
        """The last connection to a master."""

    def connect(self, sock: socket.socket, epoch: int, follower: Follower, broker_id: int) -> MasterConnection:
        """The replication connection on the connected `sock`, and the audit that goes with it."""
        settings, replica_log = self._settings, self._log
        assert replica_log.files is not None
        replica_log.files.refresh()
        session = SlaveSession(
            SlaveHandshake(
                broker_id,
                settings.sync_from_last_file,
                settings.async_learner,
                native=not settings.async_learner,
            ),
            followed_epoch=epoch if settings.enable_controller_mode else None,
            epochs=replica_log.epoch_store.epochs,
            min_offset=replica_log.files.min_offset,
            max_offset=replica_log.max_offset,
            confirm_offset=replica_log.confirm_offset,
            file_size=replica_log.files.file_size,
        )
        challenge = self._challenge(epoch, follower, broker_id)
        introduction = self._introduction(follower, broker_id, challenge)
        connection = self._last = MasterConnection(
            sock,
            session,
            preludes=[prelude for prelude in (challenge, introduction) if prelude is not None],
            files=replica_log.files,
            epoch_store=replica_log.epoch_store,
            truncate_broker=self._truncate_broker,
            on_replicated=self._on_replicated,
            strict=settings.durability == "strict",
            alone=not settings.enable_controller_mode,
            sync_flush=settings.flush_disk_type == "SYNC_FLUSH",
            heartbeat_interval=settings.ha_send_heartbeat_interval / 1000,
            housekeeping_interval=settings.ha_housekeeping_interval / 1000,
            master_silence=settings.master_silence,
        )
        open_link = (
            (lambda: self.open_audit_link(connection, epoch, follower, broker_id))
            if follower.audits
            else HaReader(follower.ha_address)
        )
        self._audit_watch.watch(connection, replica_log.files, open_link)
        return connection

    async def open_audit_link(
        self, connection: MasterConnection, epoch: int, follower: Follower, broker_id: int
    ) -> AuditLink:
        """A connection for audit requests; challenges the master if the replication connection did."""
        challenge = self._challenge(epoch, follower, broker_id) if connection.authenticated else None
        return await AuditLink.open(follower.ha_address, challenge)

    def _challenge(self, epoch: int, follower: Follower, broker_id: int) -> SlaveChallenge | None:
        """For the next connection to the master; None without authentication."""
        trust, last = self._trust, self._last
        if not trust.secret or (not trust.secret_required and last is not None and last.challenge_unanswered):
            return None  # a master without the secret closes the connection when it is challenged
        return SlaveChallenge(
            trust,
            broker_id=broker_id,
            master_id=follower.master_id,
            epoch=epoch,
            nonce=secrets.token_bytes(NONCE_SIZE),
        )

    def _introduction(
        self, follower: Follower, broker_id: int, challenge: SlaveChallenge | None
    ) -> SlaveIntroduction | None:
        """For a native master; None for others, which do not read it."""
        if not follower.introduces:
            return None
        settings = self._settings
        names = settings.broker_cluster_name, settings.name
        return SlaveIntroduction(Introduction(*names, broker_id, follower.master_id, self._controllers()), challenge)
