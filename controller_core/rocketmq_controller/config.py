"""The settings a controller runs with, and what updateControllerConfig (1009) may change of them."""

from collections.abc import Mapping
from pathlib import Path

from rocketmq_controller.settings import ControllerSettings
from rocketmq_formats.codes import ResponseCode
from rocketmq_runtime.config.live_config import UpdatableConfig
from rocketmq_runtime.config.settings import from_environment, read_properties_file


class LiveConfig(UpdatableConfig[ControllerSettings]):
    """See `UpdatableConfig`. What only the machine's configuration can set: who the members are, what they trust, where
    they listen and keep files, Raft's clockwork, bounds."""

    def __init__(self, file_values: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """As `UpdatableConfig`.

        Raises:
            SettingsError: a value that does not parse, or values that contradict each other.
        """
        super().__init__(
            ControllerSettings,
            file_values,
            environment,
            wrong_value=ResponseCode.CONTROLLER_INVALID_REQUEST,
        )

    @classmethod
    def load(cls, path: Path | None) -> "LiveConfig":
        """From `-c FILE` and the environment.

        Raises:
            SettingsError: see `__init__`.
        """
        return cls(read_properties_file(path) if path is not None else {}, from_environment(ControllerSettings))
