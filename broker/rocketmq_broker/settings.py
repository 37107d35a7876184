"""The broker's settings: its keys (`rocketmq_settings.broker`), the checks across them, and what follows."""

import socket
from pathlib import Path

from rocketmq_broker.domain.role import Durability
from rocketmq_broker.domain.tables.topics import forbidden_to_producers, name_problem
from rocketmq_formats.addresses import parse_addresses
from rocketmq_formats.store.delay_levels import DelayLevelError, parse_levels
from rocketmq_formats.topics import AUTO_CREATE_TOPIC
from rocketmq_settings.broker import BrokerKeys
from rocketmq_settings.checks import check_replica
from rocketmq_settings.replica import FAST_PORT_DISTANCE, NOT_ACTIVE_MILLIS
from rocketmq_store.retention import hours


class BrokerSettings(BrokerKeys, frozen=True):
    """Every key of `rocketmq-broker -c FILE`."""

    def __post_init__(self) -> None:
        check_replica(self, self.name)
        for key, path in (
            ("storePathRootDir", self.store_path_root_dir),
            ("storePathCommitLog", self.store_path_commit_log),
            ("sidecarSocketPath", self.sidecar_socket_path),
        ):
            _check_path(key, path)
        if not self.region_id.isprintable():  # it becomes a property of every message
            raise ValueError(f"regionId: {self.region_id!r} has characters that do not print")
        if not 2 < self.listen_port < 65535:
            raise ValueError(
                f"listenPort={self.listen_port} leaves no room for the VIP port, {FAST_PORT_DISTANCE} below"
            )
        if self.ha_port in (self.listen_port, self.fast_port):
            raise ValueError(f"haListenPort={self.ha_port} is taken by listenPort={self.listen_port} or its VIP port")
        if self.trace_topic_enable:
            self._check_trace_topic()
        hours(self.delete_when)
        try:
            parse_levels(self.message_delay_level)
        except DelayLevelError as error:
            raise ValueError(f"messageDelayLevel: {error}") from error

    def _check_trace_topic(self) -> None:
        name = self.msg_trace_topic_name
        problem = name_problem(name)
        others = (AUTO_CREATE_TOPIC, self.broker_cluster_name, self.name)
        if problem is None and (forbidden_to_producers(name) or name in others):
            problem = "this topic has another purpose"
        if problem is not None:
            raise ValueError(f"msgTraceTopicName={name!r}: {problem}")

    @property
    def name(self) -> str:
        """brokerName, or what stands for it."""
        return self.broker_name or socket.gethostname()

    @property
    def escapes(self) -> bool:
        """Delayed messages may go to another group."""
        return self.enable_slave_acting_master and self.enable_remote_escape and bool(self.name_servers)

    @property
    def fast_port(self) -> int:
        return self.listen_port - FAST_PORT_DISTANCE

    @property
    def ha_port(self) -> int:
        return self.ha_listen_port or self.listen_port + 1

    @property
    def name_servers(self) -> tuple[str, ...]:
        return parse_addresses(self.namesrv_addr)

    @property
    def root(self) -> Path:
        return Path(self.store_path_root_dir).expanduser()

    @property
    def commit_log_path(self) -> Path:
        return Path(self.store_path_commit_log).expanduser() if self.store_path_commit_log else self.root / "commitlog"

    @property
    def socket_path(self) -> Path:
        return Path(self.sidecar_socket_path).expanduser() if self.sidecar_socket_path else self.root / "sidecar.sock"

    @property
    def register_period(self) -> float:
        """Seconds."""
        return min(max(self.register_name_server_period, 10_000), 60_000) / 1000

    @property
    def not_active_timeout(self) -> int | None:
        """Milliseconds of silence after which name servers should forget this broker; None: they decide, and hear no
        heartbeats."""
        acting = NOT_ACTIVE_MILLIS if self.enable_slave_acting_master else None
        return self.broker_not_active_timeout_millis or acting

    @property
    def heartbeat_period(self) -> float | None:
        """Seconds between two heartbeats to a name server; None: it sends none."""
        timeout = self.not_active_timeout
        return None if timeout is None else min(self.broker_heartbeat_interval, timeout / 3) / 1000

    @property
    def copies_needed(self) -> int:
        """Replicas in sync without which a send is refused."""
        if self.waits_for_no_copies:
            return 1
        return max(2, self.min_in_sync_replicas) if self.durability == "strict" else self.min_in_sync_replicas

    @property
    def put_ok(self) -> Durability:
        """What PUT_OK promises; the sidecar's `AckRule` says the same of copies."""
        strict = self.durability == "strict"
        copies = 1 if not strict and not self.all_ack_in_sync_state_set else 2
        alone = self.waits_for_no_copies or max(copies, self.in_sync_replicas, self.min_in_sync_replicas) == 1
        return Durability(self.copies_needed, strict, alone and self.flush_disk_type == "ASYNC_FLUSH")


def _check_path(key: str, text: str) -> None:
    if "\0" in text:
        raise ValueError(f"{key}: {text!r} cannot be a path")
    try:
        Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{key}: {text!r} begins with a user that this system does not have") from error
