"""The name server's settings: its keys (`rocketmq_settings.name_server`), the checks across them, and what follows."""

from pathlib import Path

from rocketmq_namesrv.domain.model import Limits
from rocketmq_runtime.config.live_config import UpdatableSettings
from rocketmq_settings.checks import take_bind_hosts
from rocketmq_settings.name_server import NameServerKeys


class NameServerSettings(UpdatableSettings, NameServerKeys, frozen=True):
    """Every key of `rocketmq-namesrv -c FILE`; those of an embedded controller come beside them."""

    def __post_init__(self) -> None:
        if self.cluster_test:
            raise ValueError("clusterTest=true is not supported: it makes Java ask another environment's name server")
        take_bind_hosts(self, "bindAddress", "metricsPromExporterHost")
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
