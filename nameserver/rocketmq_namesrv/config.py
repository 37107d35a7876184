"""The settings a name server runs with, and how updateNamesrvConfig (318) changes them.

Updates are checked as a whole, written to `configStorePath` before they take effect, and laid over the configuration
file at the next start. They concern this process only, as in Java; an embedded controller has its own (1009).
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import structlog

from rocketmq_controller.domain.config_update import update_config
from rocketmq_formats import properties
from rocketmq_formats.remoting.codes import ResponseCode
from rocketmq_namesrv.settings import UPDATABLE, NameServerSettings
from rocketmq_runtime.atomic_file import write_atomically
from rocketmq_runtime.filesystem import StorageError, storage_errors
from rocketmq_runtime.settings import (
    SettingsError,
    build_settings,
    from_environment,
    read_properties_file,
    to_text_values,
)

log = structlog.get_logger(__name__)

ALWAYS_BLACK_LISTED = "kvConfigPath"
"""Refused besides the keys that every configuration update refuses."""


class Answer(msgspec.Struct, frozen=True):
    """Code and remark of an update's answer."""

    code: ResponseCode
    remark: str | None = None


class LiveConfig:
    """Holds the current settings; `settings` is replaced as a whole, never changed."""

    def __init__(self, file_values: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> None:
        """Settings from the file's values, the kept updates, and the environment, in this order.

        Raises:
            SettingsError: a value that does not parse, or values that contradict each other.
        """
        self.file_values, self.environ = file_values, environ
        self._environment = from_environment(NameServerSettings, environ)
        self._updates: dict[str, str] = {}
        loaded = build_settings(NameServerSettings, file_values, self._environment)
        self.settings = loaded.settings
        self.unknown_keys = loaded.unknown_keys
        path = self.settings.update_path
        if path.is_file():
            self._updates = read_properties_file(path)
            self.settings = self._build(self._updates)
        self._listeners: list[Callable[[NameServerSettings], None]] = []

    @classmethod
    def load(cls, path: Path | None) -> "LiveConfig":
        """From `-c FILE` and the environment.

        Raises:
            SettingsError: see `__init__`.
        """
        return cls(read_properties_file(path) if path is not None else {})

    def on_update(self, listener: Callable[[NameServerSettings], None]) -> None:
        """Call `listener` with the new settings after each update."""
        self._listeners.append(listener)

    @property
    def kept_updates(self) -> tuple[str, ...]:
        """Keys that an earlier updateNamesrvConfig set."""
        return tuple(sorted(self._updates))

    def as_properties(self) -> bytes:
        """All keys and values, sorted, one `k=v` a line (319)."""
        return properties.dump(to_text_values(self.settings))

    def update(self, body: bytes) -> Answer:
        """318: take `k=v` lines; nothing changes unless all of it can and is on disk.

        Codes: 0; 1 the file cannot be written; 16 a key on the black list; 29 a value that is refused.

        Raises:
            BodyError: not properties text.
        """
        decided = update_config(
            properties.parse(body),
            known_keys=NameServerSettings.__struct_encode_fields__,
            config_black_list=f"{self.settings.config_black_list};{ALWAYS_BLACK_LISTED}",
            validate=self._why_not,
        )
        if decided.code is ResponseCode.CONTROLLER_INVALID_REQUEST:  # one rule for both, but this is no controller
            return Answer(ResponseCode.INVALID_PARAMETER, decided.remark)
        if decided.code is not ResponseCode.SUCCESS or not decided.values:
            return Answer(decided.code, decided.remark)
        updates = {**self._updates, **decided.values}
        path = self.settings.update_path
        try:
            make_parent(path)
            write_atomically(path, properties.dump(updates))
        except StorageError as error:
            log.error("configuration update not kept, so not done", reason=str(error))
            return Answer(ResponseCode.SYSTEM_ERROR, f"the update could not be written: {error}")
        self._updates = updates
        self.settings = self._build(updates)
        for key, value in sorted(decided.values.items()):
            effective = "now" if key in UPDATABLE else "after restart"
            log.info("configuration updated", key=key, value=value, effective=effective)
        for listener in self._listeners:
            listener(self.settings)
        return Answer(ResponseCode.SUCCESS)

    def _why_not(self, values: Mapping[str, str]) -> str | None:
        try:
            self._build({**self._updates, **values})
        except SettingsError as error:
            return str(error)
        overridden = sorted(key for key in values if key in self._environment)
        if overridden:
            return f"{', '.join(overridden)}: set in this process's environment, which comes before updates"
        return None

    def _build(self, updates: Mapping[str, str]) -> NameServerSettings:
        return build_settings(NameServerSettings, self.file_values, updates, self._environment).settings


def make_parent(path: Path) -> None:
    """Make the folder that `path` is in, if it is not there.

    Raises:
        StorageError: it cannot be made.
    """
    with storage_errors(path.parent, "make the folder"):
        path.parent.mkdir(parents=True, exist_ok=True)
