"""Replication of the commit log, both ways: the HA port as master, the HA client as slave, and the epoch file.

The agent drives it: it says which role this replica has and what the broker reports, and is told, through the callbacks
given at construction, what to pass on to the broker and to the controllers. Everything here runs on the event loop's
thread; calls may be made in any order and at any time, each is safe to cancel and to repeat (level-triggered).
Source: ha reference; RIP-44 replication.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

import msgspec

from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.replica_link import Hello
from rocketmq_formats.replica_link import Replication as Progress


class ReplicationError(Exception):
    """Replication cannot do what was asked; the text says what an operator can do."""


class StaleEpochError(ReplicationError):
    """Asked to be master of an epoch older than the last one in the epoch file: whoever decided this knew less."""


class ReplicationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What replication needs of the sidecar's configuration; names and defaults are MessageStoreConfig's."""

    cluster_name: str
    broker_name: str
    store_path: Path
    """storePathRootDir: `writer.lock` and, unless `epoch_file` says otherwise, `epochFileCheckpoint` live there."""
    commit_log_path: Path
    """storePathCommitLog."""
    epoch_file: Path
    """storePathEpochFile."""
    listen_host: str = "0.0.0.0"  # noqa: S104 - replicas on other hosts must reach it
    ha_listen_port: int = 10912
    """0 takes a free one, see `Replication.ha_port`."""
    ha_address: str = ""
    """This replica's own HA address (brokerIP2:haListenPort), only for status."""
    durability: Literal["strict", "relaxed"] = "strict"
    """strict: a message counts as acknowledged when every member of the SyncStateSet, at least two, has it."""
    all_ack_in_sync_state_set: bool = True
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    enable_auto_in_sync_replicas: bool = False
    async_learner: bool = False
    sync_from_last_file: bool = False
    flush_disk_type: Literal["ASYNC_FLUSH", "SYNC_FLUSH"] = "ASYNC_FLUSH"
    """SYNC_FLUSH: as a slave, what is acknowledged to the master is on disk."""
    ha_send_heartbeat_interval: int = 5000
    """Milliseconds."""
    ha_housekeeping_interval: int = 20000
    """Milliseconds of silence after which a connection is closed."""
    ha_max_time_slave_not_catchup: int = 15000
    """Milliseconds after which a slave that did not catch up leaves the SyncStateSet."""
    ha_transfer_batch_size: int = 32768
    """Bytes of one batch to a slave that keeps up; one that is behind gets up to 1 MiB at a time."""
    ha_flow_control_enable: bool = False
    max_ha_transfer_byte_in_second: int = 104857600
    check_sync_state_set_period: int = 5000
    """Milliseconds between looks for slaves that fell behind; at most a third of haMaxTimeSlaveNotCatchup is used."""


class Replication:
    """Both halves of AutoSwitchHA for one replica.

    The order of a life: `start`, `identified`, `opened`, then any sequence of `become_master`/`resign` and
    `follow`/`unfollow`, `stop` at the end. `become_master` while following unfollows, `follow` while master resigns.
    """

    def __init__(
        self,
        settings: ReplicationSettings,
        *,
        on_sync_set_wanted: Callable[[frozenset[int]], None],
        on_progress: Callable[[Progress], None],
        on_replicated: Callable[[int, int], None],
        truncate_broker: Callable[[int], Awaitable[None]],
        on_status: Callable[[bytes, bytes], None],
        on_trouble: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        """
        Args:
            on_sync_set_wanted: master: the set that the controllers should agree to (1001), this replica included.
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
        """
        self.settings = settings

    async def start(self) -> None:
        """Open the HA port, which stays open whatever the role; connections are refused unless master.

        Raises:
            OSError: the port is taken.
            ReplicationError: the epoch file is unreadable, and its `.bak` too.
        """
        raise NotImplementedError

    async def stop(self) -> None:
        """Close everything and release the writer lock. Not to be started again."""
        raise NotImplementedError

    @property
    def ha_port(self) -> int:
        """The port in use; equals `ha_listen_port` unless that was 0."""
        raise NotImplementedError

    def identified(self, broker_id: int) -> None:
        """This replica's id at the controllers (from 1), once it is known; needed before a role."""
        raise NotImplementedError

    def opened(self, hello: Hello) -> None:
        """The broker (again) recovered the store: bounds of the log, its confirm offset, the size of files.

        Epochs that start behind the log's end are dropped from the epoch file: that part of the log was lost.
        """
        raise NotImplementedError

    async def become_master(self, epoch: int, max_offset: int, sync_state_set: SyncStateSet) -> None:
        """Master of `epoch`, which begins at `max_offset` (the broker's `Prepared`: a whole record's end).

        When it returns the epoch is in the epoch file, durably, and slaves are served. Already master: the new epoch
        begins, connections stay.

        Raises:
            StaleEpochError: an epoch younger than `epoch` is in the file.
            StorageError: the epoch file could not be written; no role is taken.
        """
        raise NotImplementedError

    async def resign(self) -> None:
        """Stop being master: every slave's connection is closed when it returns. Harmless if not master."""
        raise NotImplementedError

    async def follow(self, epoch: int, master_broker_id: int, master_address: str) -> None:
        """Replicate from the master at `master_address` (its broker port: it is asked for its HA address by 906).

        Returns at once; connects, truncates, replicates and reconnects for ever in the background. The same
        arguments again: nothing happens; another address of the same master: goes there at the next connect.
        The writer lock is taken before anything is written to the log, as soon as the broker lets go of it.
        """
        raise NotImplementedError

    async def unfollow(self) -> None:
        """Stop replicating; when it returns nothing appends any more and the writer lock is released. Harmless if not
        following. What arrived stays in the log, a last incomplete record too."""
        raise NotImplementedError

    def appended(self, max_offset: int, flushed_offset: int) -> None:
        """Master: the broker's log reaches to `max_offset`, on disk to `flushed_offset`; slaves get it at once."""
        raise NotImplementedError

    def retained(self, min_offset: int) -> None:
        """The broker deleted expired files: epochs that end at or before `min_offset` are forgotten."""
        raise NotImplementedError

    def set_sync_state_set(self, agreed: SyncStateSet) -> None:
        """Master: the controllers agreed (1001, 1004, 1008). Ignored unless its epoch is newer than the last one."""
        raise NotImplementedError

    def sync_set_refused(self) -> None:
        """Master: the controllers definitely refused the last wish. Not for a lost answer: until the outcome is known,
        copies on the members of both sets are asked for."""
        raise NotImplementedError

    @property
    def max_offset(self) -> int:
        """End of the log in bytes, for heartbeats: as master the broker's, as slave what was received."""
        raise NotImplementedError

    @property
    def confirm_offset(self) -> int:
        """What consumers may see."""
        raise NotImplementedError

    @property
    def last_epoch(self) -> int:
        """Last epoch of the epoch file, -1 if it has none; for heartbeats."""
        raise NotImplementedError
