"""The settings a name server runs with; updateNamesrvConfig (318) changes them. An embedded controller has its own
(1009)."""

import os
from collections.abc import Mapping
from pathlib import Path

from rocketmq_formats.codes import ResponseCode
from rocketmq_namesrv.settings import NameServerSettings
from rocketmq_runtime.config.live_config import UpdatableConfig
from rocketmq_runtime.config.settings import from_environment, read_properties_file
from rocketmq_runtime.files.atomic_file import write_atomically
from rocketmq_runtime.files.filesystem import storage_errors
from rocketmq_settings.controller import ControllerKeys
from rocketmq_settings.table import keys


class LiveConfig(UpdatableConfig[NameServerSettings]):
    """See `UpdatableConfig`. The folder that updates are kept in is made when there is one to keep."""

    def __init__(self, file_values: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> None:
        """As `UpdatableConfig`; `environ` as the process was given it, for an embedded controller too.

        Raises:
            SettingsError: a value that does not parse, or values that contradict each other.
        """
        self.file_values, self.environ = file_values, environ
        super().__init__(
            NameServerSettings,
            file_values,
            from_environment(NameServerSettings, environ),
            wrong_value=ResponseCode.INVALID_PARAMETER,
            write=write_with_folder,
        )

    @property
    def unknown_keys(self) -> tuple[str, ...]:
        """Keys of the file that mean nothing here, nor to an embedded controller."""
        elsewhere = keys(ControllerKeys) if self.settings.enable_controller_in_namesrv else frozenset()
        return tuple(key for key in super().unknown_keys if key not in elsewhere)

    @classmethod
    def load(cls, path: Path | None) -> "LiveConfig":
        """From `-c FILE` and the environment.

        Raises:
            SettingsError: see `__init__`.
        """
        return cls(read_properties_file(path) if path is not None else {})


def write_with_folder(path: Path, data: bytes) -> None:
    """`write_atomically`; makes the folder that `path` is in, if it is not there.

    Raises:
        StorageError: the folder cannot be made, or the file not written.
    """
    with storage_errors(path.parent, "make the folder"):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, data)
