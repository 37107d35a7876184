"""The settings a controller runs with, and what updateControllerConfig (1009) may change of them."""

from collections.abc import Mapping
from pathlib import Path

from rocketmq_controller.settings import UPDATABLE, ControllerSettings
from rocketmq_formats.remoting.codes import ResponseCode
from rocketmq_runtime.live_config import UpdatableConfig
from rocketmq_runtime.settings import from_environment, read_properties_file


class LiveConfig(UpdatableConfig[ControllerSettings]):
    """See `UpdatableConfig`. Who the members are and where the state lies cannot be changed while running."""

    def __init__(self, file_values: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """As `UpdatableConfig`.

        Raises:
            SettingsError: a value that does not parse, or values that contradict each other.
        """
        super().__init__(
            ControllerSettings,
            file_values,
            environment,
            at_once=UPDATABLE,
            wrong_value=ResponseCode.CONTROLLER_INVALID_REQUEST,
            objection=_objection,
        )

    @classmethod
    def load(cls, path: Path | None) -> "LiveConfig":
        """From `-c FILE` and the environment.

        Raises:
            SettingsError: see `__init__`.
        """
        return cls(read_properties_file(path) if path is not None else {}, from_environment(ControllerSettings))


def _objection(now: ControllerSettings, wanted: ControllerSettings) -> str | None:
    if wanted.peers.keys() != now.peers.keys() or wanted.self_peer.id != now.self_peer.id:
        return "controllerDLegerPeers and controllerDLegerSelfId cannot be changed while running"
    if wanted.store_path != now.store_path:
        return "controllerStorePath cannot be changed while running: the next start would begin with empty state"
    return None
