"""The name server's configuration: RocketMQ's keys with RocketMQ's defaults, and ours beside them.

Source: name server reference, section 9 (NamesrvConfig, and NettyServerConfig as far as a name server's file carries
it); our own keys: docs/operations.md.
"""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from rocketmq_namesrv.domain.model import Limits
from rocketmq_runtime.live_config import UpdatableSettings

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Millis = Annotated[int, msgspec.Meta(ge=10, le=86_400_000)]
Count = Annotated[int, msgspec.Meta(ge=1, le=100_000_000)]

UPDATABLE = frozenset(
    {
        "scanNotActiveBrokerInterval",
        "supportActingMaster",
        "notifyMinBrokerIdChanged",
        "enableAllTopicList",
        "enableTopicList",
        "returnOrderTopicConfigToBroker",
        "orderMessageEnable",
        "needWaitForService",
        "waitSecondsForService",
        "deleteTopicWithBrokerRegistration",
        "logLevel",
    }
)
"""Keys whose new value takes effect at once; the others are kept for the next start."""


class NameServerSettings(UpdatableSettings, frozen=True):
    """Every key of `rocketmq-namesrv -c FILE`; those of an embedded controller come beside them."""

    # RocketMQ's own keys
    listen_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 9876
    bind_address: str = "0.0.0.0"  # noqa: S104 - brokers and clients on other hosts must reach it
    rocketmq_home: str = ""
    """Accepted because Java's files carry it; nothing is read from there."""
    kv_config_path: str = "~/namesrv/kvConfig.json"
    """Where the KV configuration is kept; the folder is made when it is first written."""
    config_store_path: str = "~/namesrv/namesrv.properties"
    """Where updateNamesrvConfig keeps what it changed."""
    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"
    """Keys that updateNamesrvConfig refuses, separated by `;`."""
    scan_not_active_broker_interval: Millis = 5000
    """How often brokers that have been silent for longer than they declared are looked for, in milliseconds. One whose
    connection ends is forgotten at once."""
    support_acting_master: bool = False
    """Show clients the smallest id of a group without a master as its master, if the group wants it (RIP-32)."""
    notify_min_broker_id_changed: bool = False
    """Tell brokers when the smallest id of their group changes (905)."""
    enable_all_topic_list: bool = True
    """Answer 206."""
    enable_topic_list: bool = True
    """Answer 224, 311, 312 and 313."""
    return_order_topic_config_to_broker: bool = True
    order_message_enable: bool = False
    """Put the ORDER_TOPIC_CONFIG of a topic into its route."""
    need_wait_for_service: bool = False
    """Answer no routes until waitSecondsForService after the start, so that all brokers have registered."""
    wait_seconds_for_service: Annotated[int, msgspec.Meta(ge=0, le=86_400)] = 45
    delete_topic_with_broker_registration: bool = False
    """Take off a master the topics that its full registration does not name any more."""
    enable_controller_in_namesrv: bool = False
    """Run a controller in this process, with its own keys from the same file and its own ports (RIP-44)."""
    cluster_test: bool = False
    product_env_name: str = "center"
    """Accepted because Java's files carry it; used there with clusterTest only."""
    # Threads and their queues, accepted because Java's files carry them: one event loop does it all
    un_register_broker_queue_capacity: Count = 3000
    client_request_thread_pool_nums: Count = 8
    default_thread_pool_nums: Count = 16
    client_request_thread_pool_queue_capacity: Count = 50_000
    default_thread_pool_queue_capacity: Count = 10_000

    # Ours
    metrics_prom_exporter_port: Port = 0
    """/metrics, /healthz and /readyz; 0: none."""
    metrics_prom_exporter_host: str = ""
    """Empty: as bindAddress."""
    max_connections: Annotated[int, msgspec.Meta(ge=10, le=1_000_000)] = 10_000
    max_brokers: Count = 10_000
    """Broker names that may be registered at once."""
    max_topics: Count = 200_000
    """Topics that may be registered at once; ten times as many pairs of topic and broker name."""
    log_format: Literal["json", "console"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    def __post_init__(self) -> None:
        if self.cluster_test:
            raise ValueError("clusterTest=true is not supported: it makes Java ask another environment's name server")
        if self.listen_port == self.metrics_prom_exporter_port:
            raise ValueError(f"listenPort and metricsPromExporterPort are both {self.listen_port}")

    @property
    def kv_path(self) -> Path:
        return Path(self.kv_config_path).expanduser()

    @property
    def update_path(self) -> Path:
        """Where runtime updates are kept."""
        return Path(self.config_store_path).expanduser()

    @property
    def black_list(self) -> str:
        """Keys that updateNamesrvConfig refuses, separated by `;`: kvConfigPath always, whatever the setting says."""
        return f"{self.config_black_list};kvConfigPath"

    @property
    def limits(self) -> Limits:
        """How far the tables may grow."""
        return Limits(brokers=self.max_brokers, topics=self.max_topics, queue_datas=10 * self.max_topics)
