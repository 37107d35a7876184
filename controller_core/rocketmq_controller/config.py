"""The settings a process runs with, and how updateControllerConfig changes them.

Updates are checked as a whole, written to `configStorePath` before they take effect, and laid over the configuration
file at the next start. They concern this member only, as in Java.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from rocketmq_controller.domain.config_update import update_config
from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.settings import UPDATABLE, ControllerSettings
from rocketmq_formats import properties
from rocketmq_formats.remoting.codes import ResponseCode
from rocketmq_runtime.atomic_file import write_atomically
from rocketmq_runtime.filesystem import StorageError
from rocketmq_runtime.settings import (
    SettingsError,
    build_settings,
    from_environment,
    read_properties_file,
    to_text_values,
)

log = structlog.get_logger(__name__)


class LiveConfig:
    """Holds the current settings; `settings` is replaced as a whole, never changed."""

    def __init__(self, file_values: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """Settings from the file's values, the kept updates, and the environment, in this order.

        Raises:
            SettingsError: a value that does not parse, or values that contradict each other.
        """
        self._file_values, self._environment = file_values, environment
        self._updates: dict[str, str] = {}
        loaded = build_settings(ControllerSettings, file_values, environment)
        self.settings = loaded.settings
        self.unknown_keys = loaded.unknown_keys
        path = self.settings.update_path
        if path.is_file():
            self._updates = read_properties_file(path)
            self.settings = self._build(self._updates)
        self._listeners: list[Callable[[ControllerSettings], None]] = []

    @classmethod
    def load(cls, path: Path | None) -> "LiveConfig":
        """From `-c FILE` and the environment.

        Raises:
            SettingsError: see `__init__`.
        """
        return cls(read_properties_file(path) if path is not None else {}, from_environment(ControllerSettings))

    def on_update(self, listener: Callable[[ControllerSettings], None]) -> None:
        """Call `listener` with the new settings after each update."""
        self._listeners.append(listener)

    @property
    def kept_updates(self) -> tuple[str, ...]:
        """Keys that an earlier updateControllerConfig set."""
        return tuple(sorted(self._updates))

    def as_properties(self) -> bytes:
        """All keys and values, sorted, one `k=v` a line (1010)."""
        return properties.dump(to_text_values(self.settings))

    def update(self, body: bytes) -> Decision:
        """1009: take `k=v` lines; nothing changes unless all of it can and is on disk.

        Codes: 0; 1 the file cannot be written; 16 a key on the black list; 2005 a value that is refused.

        Raises:
            BodyError: not properties text.
        """
        decided = update_config(
            properties.parse(body),
            known_keys=ControllerSettings.__struct_encode_fields__,
            config_black_list=self.settings.config_black_list,
            validate=self._why_not,
        )
        if decided.code is ResponseCode.SUCCESS and decided.values:
            updates = {**self._updates, **decided.values}
            try:
                write_atomically(self.settings.update_path, properties.dump(updates))
            except StorageError as error:
                log.error("configuration update not kept, so not done", reason=str(error))
                return Decision(ResponseCode.SYSTEM_ERROR, f"the update could not be written: {error}")
            self._updates = updates
            self.settings = self._build(updates)
            for key, value in sorted(decided.values.items()):
                log.info(
                    "configuration updated",
                    key=key,
                    value=value,
                    effective="now" if key in UPDATABLE else "after restart",
                )
            for listener in self._listeners:
                listener(self.settings)
        return Decision(decided.code, decided.remark)

    def _why_not(self, values: Mapping[str, str]) -> str | None:
        try:
            settings = self._build({**self._updates, **values})
        except SettingsError as error:
            return str(error)
        overridden = sorted(key for key in values if key in self._environment)
        if overridden:
            return f"{', '.join(overridden)}: set in this process's environment, which comes before updates"
        if settings.peers.keys() != self.settings.peers.keys() or settings.self_peer.id != self.settings.self_peer.id:
            return "controllerDLegerPeers and controllerDLegerSelfId cannot be changed while running"
        if settings.store_path != self.settings.store_path:
            return "controllerStorePath cannot be changed while running: the next start would begin with empty state"
        return None

    def _build(self, updates: Mapping[str, str]) -> ControllerSettings:
        return build_settings(ControllerSettings, self._file_values, updates, self._environment).settings
