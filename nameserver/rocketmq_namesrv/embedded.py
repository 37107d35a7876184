"""The controller inside a name server's process (enableControllerInNamesrv, RIP-44's embedded mode).

Imported only where it is configured, because it needs Raft and gRPC. It has its own ports and its own keys from the
same file; three keys that both have belong to the name server:

- `configStorePath`: two writers of one file would undo each other; the controller keeps its updates in
  controllerStorePath.
- `metricsPromExporterPort` and `-Host`: one port serves the metrics and the health of both.
"""

import asyncio
from collections.abc import Mapping

from prometheus_client import CollectorRegistry

from rocketmq_controller.app import ControllerApp
from rocketmq_controller.config import LiveConfig
from rocketmq_controller.raft import RaftError, RaftSettingsError
from rocketmq_controller.settings import ControllerSettings
from rocketmq_namesrv.app import HostedControllerError
from rocketmq_runtime.config.settings import Placed, SettingsError, from_environment

NAME_SERVERS_OWN = frozenset({"configStorePath", "metricsPromExporterPort", "metricsPromExporterHost"})


class EmbeddedController:
    """One controller in this process and event loop; implements `app.HostedController`."""

    def __init__(self, file_values: Mapping[str, str], environ: Mapping[str, str]) -> None:
        """From the name server's file and environment; nothing is opened yet. Needs a running event loop.

        Raises:
            SettingsError: a value that does not parse, one that is missing, or a file that cannot be read.
        """
        config = controller_config(file_values, environ)
        try:
            self._app = ControllerApp(config)
        except RaftSettingsError as error:
            raise SettingsError(str(error)) from error

    @property
    def member_id(self) -> str:
        return self._app.config.settings.self_peer.id

    @property
    def registry(self) -> CollectorRegistry:
        """The controller's metrics."""
        return self._app.metrics.registry

    @property
    def stopping(self) -> asyncio.Event:
        """Set when it cannot continue."""
        return self._app.stopping

    @property
    def fatal(self) -> bool:
        """Whether it could not continue."""
        return self._app.fatal is not None

    def healthy(self) -> str | None:
        """None, or what is wrong with it."""
        return self._app.health.healthy()

    async def start(self) -> None:
        """Load its state, join the quorum, open its ports.

        Raises:
            HostedControllerError: state on disk that cannot be trusted.
            StorageError, OSError: state cannot be written; a port cannot be bound.
        """
        try:
            await self._app.start()
        except RaftError as error:
            raise HostedControllerError(f"{type(error).__name__}: {error}") from error

    async def stop(self) -> None:
        """Hand over leadership and close everything."""
        await self._app.stop()


def controller_config(file_values: Mapping[str, str], environ: Mapping[str, str]) -> LiveConfig:
    """The embedded controller's configuration.

    Raises:
        SettingsError: a value that does not parse, or one that is missing.
    """
    environment = _without_own(from_environment(ControllerSettings, environ))
    return LiveConfig(_without_own(file_values, {"metricsPromExporterPort": "0"}), environment)


def _without_own(values: Mapping[str, str], instead: Mapping[str, str] | None = None) -> Placed:
    kept = {key: value for key, value in values.items() if key not in NAME_SERVERS_OWN}
    return Placed({**kept, **(instead or {})}, values.places if isinstance(values, Placed) else {})
