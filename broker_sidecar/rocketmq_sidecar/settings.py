"""The sidecar's settings: its keys (`rocketmq_settings.sidecar`), the checks across them, and what follows."""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rocketmq_formats.addresses import parse_addresses
from rocketmq_formats.remoting.controller import LONGEST_WRITE_LEASE_MS
from rocketmq_runtime.config.settings import group_values
from rocketmq_settings.checks import check_addresses, check_replica, take_bind_hosts
from rocketmq_settings.replica import NOT_ACTIVE_MILLIS
from rocketmq_settings.sidecar import SidecarKeys
from rocketmq_sidecar.domain.options import Options, Timing
from rocketmq_sidecar.domain.replication.confirm import AckRule

_LEASE_MARGIN_MS: Final = 100


class SidecarSettings(SidecarKeys, frozen=True):
    """Every key of `rocketmq-sidecar -c FILE`."""

    def __post_init__(self) -> None:
        check_replica(self, self.name)
        check_addresses("controllerAddr", self.controller_addr)
        take_bind_hosts(self, "metricsPromExporterHost")
        if not self.enable_controller_mode and self.beside_java_broker:
            raise ValueError(
                "enableControllerMode=false with brokerEngine=apache: an official broker without controllers runs"
                " without a sidecar"
            )
        if self.enable_controller_mode and not self.controllers:
            raise ValueError(
                "controllerAddr is not set: name all controllers as host:port;host:port;host:port, or set"
                " enableControllerMode=false"
            )
        if not 0 < self.ha_port < 65536 or self.ha_port == self.listen_port:
            raise ValueError(f"haListenPort={self.ha_port} must be a port other than listenPort={self.listen_port}")
        tls = (self.sidecar_grpc_tls_cert_file, self.sidecar_grpc_tls_key_file, self.sidecar_grpc_tls_ca_file)
        if any(tls) and not all(tls):
            raise ValueError("sidecarGrpcTlsCertFile, sidecarGrpcTlsKeyFile and sidecarGrpcTlsCaFile go together")
        if self.ha_replication_secret_file and self.broker_engine != "native":
            raise ValueError("haReplicationSecretFile: official brokers replicate without a secret; remove the key")
        if self.broker_lease_timeout_ms >= self.controller_heart_beat_timeout_mills:
            raise ValueError(
                f"brokerLeaseTimeoutMs={self.broker_lease_timeout_ms} must be less than"
                f" controllerHeartBeatTimeoutMills={self.controller_heart_beat_timeout_mills}:"
                " after that time another master may be elected"
            )
        if self.durability == "relaxed" and self.broker_lease_timeout_ms > LONGEST_WRITE_LEASE_MS:
            raise ValueError(
                f"brokerLeaseTimeoutMs={self.broker_lease_timeout_ms} must be at most {LONGEST_WRITE_LEASE_MS} with"
                " durability=relaxed: a new leading controller waits no longer before it elects another master"
            )

    @property
    def beside_java_broker(self) -> bool:
        return self.broker_engine == "apache"

    @property
    def name(self) -> str:
        """brokerName, or the host name."""
        return self.broker_name or socket.gethostname()

    @property
    def controllers(self) -> tuple[str, ...]:
        """Each address once, in order."""
        return parse_addresses(self.controller_addr)

    @property
    def declared_timeout_mills(self) -> int:
        """heartbeatTimeoutMills of our heartbeats. A replica that was silent for longer than its lease is no longer
        master, so the controllers need not wait for their brokerSuspectTimeoutMs."""
        return min(self.controller_heart_beat_timeout_mills, self.broker_lease_timeout_ms + _LEASE_MARGIN_MS)

    @property
    def ha_port(self) -> int:
        return self.ha_listen_port or self.listen_port + 1

    @property
    def root(self) -> Path:
        return Path(self.store_path_root_dir).expanduser()

    @property
    def commit_log_path(self) -> Path:
        return _path(self.store_path_commit_log, self.root / "commitlog")

    @property
    def epoch_file(self) -> Path:
        return _path(self.store_path_epoch_file, self.root / "epochFileCheckpoint")

    @property
    def java_identity_file(self) -> Path | None:
        return Path(self.store_path_broker_identity).expanduser() if self.store_path_broker_identity else None

    @property
    def socket_path(self) -> Path:
        return _path(self.sidecar_socket_path, self.root / "sidecar.sock")

    @property
    def acknowledges_what_all_have(self) -> bool:
        """An acknowledged message is on every member of the SyncStateSet."""
        return self.durability == "strict" or (self.all_ack_in_sync_state_set and not self.waits_for_no_copies)

    @property
    def ack_rule(self) -> AckRule:
        """Whose copies a message needs."""
        if self.waits_for_no_copies:
            return AckRule(strict=False, all_ack_in_sync_state_set=False, in_sync_replicas=1, min_in_sync_replicas=1)
        return AckRule(
            strict=self.durability == "strict",
            all_ack_in_sync_state_set=self.all_ack_in_sync_state_set,
            in_sync_replicas=self.in_sync_replicas,
            min_in_sync_replicas=self.min_in_sync_replicas,
            enable_auto_in_sync_replicas=self.enable_auto_in_sync_replicas,
        )

    def group_settings(self, broker: Mapping[str, str]) -> Mapping[str, str]:
        """Key -> value of what all replicas of the group share. `broker`: the broker's, as in its `Hello`."""
        return {**broker, **group_values(self)}

    @property
    def master_silence(self) -> float:
        """Seconds of silence after which a slave no longer counts on its master. An idle one sends heartbeats only."""
        return (
            max(self.broker_not_active_timeout_millis or NOT_ACTIVE_MILLIS, 2 * self.ha_send_heartbeat_interval) / 1000
        )

    @property
    def options(self) -> Options:
        """For the control machine."""
        lease = self.broker_lease_timeout_ms / 1000
        timing = Timing(
            lease=lease,
            heartbeat=min(self.broker_heartbeat_interval / 1000, lease / 4),
            patience=lease / 4,
            poll=self.sync_broker_metadata_period / 1000,
            unfollowed=self.ha_max_time_slave_not_catchup / 1000,
        )
        return Options(
            cluster_name=self.broker_cluster_name,
            broker_name=self.name,
            controllers=self.controllers,
            timing=timing,
            relaxed=self.durability == "relaxed",
            fixed_id=None if self.enable_controller_mode else self.broker_id,
            learner=self.async_learner,
        )


def _path(text: str, default: Path) -> Path:
    return Path(text).expanduser() if text else default
