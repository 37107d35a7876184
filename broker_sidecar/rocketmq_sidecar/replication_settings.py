"""What replication needs of the sidecar's configuration. Filled by whoever builds `Replication`."""

from pathlib import Path
from typing import Literal

import msgspec


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
