"""The settings a process runs with while tools change them: updateControllerConfig (1009), updateNamesrvConfig (318).

Updates are checked as a whole, written to a file of their own before they take effect, and laid over the configuration
file at the next start. They concern this process only, as in Java. Used by controllers and name servers, which say
what may not be changed.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import structlog

from rocketmq_formats import properties
from rocketmq_formats.remoting.codes import ResponseCode
from rocketmq_runtime.atomic_file import write_atomically
from rocketmq_runtime.config_update import update_config
from rocketmq_runtime.filesystem import StorageError
from rocketmq_runtime.settings import Settings, SettingsError, build_settings, read_properties_file, to_text_values

log = structlog.get_logger(__name__)


class UpdatableSettings(Settings, frozen=True):
    """Settings of a process that takes updates."""

    @property
    def update_path(self) -> Path:
        """Where updates are kept."""
        raise NotImplementedError

    @property
    def black_list(self) -> str:
        """Keys that updates may not have, separated by `;`."""
        raise NotImplementedError


S = TypeVar("S", bound=UpdatableSettings)


class Answer(msgspec.Struct, frozen=True):
    """Code and remark of an update's answer."""

    code: ResponseCode
    remark: str | None = None


class UpdatableConfig(Generic[S]):
    """Holds the current settings; `settings` is replaced as a whole, never changed."""

    def __init__(
        self,
        spec: type[S],
        file_values: Mapping[str, str],
        environment: Mapping[str, str],
        *,
        at_once: Collection[str],
        wrong_value: ResponseCode,
        objection: Callable[[S, S], str | None] = lambda _now, _wanted: None,
        write: Callable[[Path, bytes], None] = write_atomically,
    ) -> None:
        """Settings from the file's values, the kept updates, and the environment, in this order.

        Args:
            at_once: keys whose new value takes effect at once; the others wait for the next start.
            wrong_value: what an update with a value that is refused is answered with.
            objection: why a running process may not go over from the first settings to the second; None if it may.
            write: keeps the updates; raises StorageError.

        Raises:
            SettingsError: a value that does not parse, values that contradict each other, or kept updates that cannot
                be looked for.
        """
        self._spec, self._at_once, self._wrong_value = spec, at_once, wrong_value
        self._objection, self._write = objection, write
        self._file_values, self._environment = file_values, environment
        self._updates: dict[str, str] = {}
        loaded = build_settings(spec, file_values, environment)
        self.settings: S = loaded.settings
        self.unknown_keys = loaded.unknown_keys
        path = self.settings.update_path
        try:
            kept = path.is_file()
        except OSError as error:
            raise SettingsError(f"{error}: who runs this process must be able to read and write there") from error
        if kept:
            self._updates = read_properties_file(path)
            self.settings = self._build(self._updates)
        self._listeners: list[Callable[[S], None]] = []

    def on_update(self, listener: Callable[[S], None]) -> None:
        """Call `listener` with the new settings after each update."""
        self._listeners.append(listener)

    @property
    def kept_updates(self) -> tuple[str, ...]:
        """Keys that an earlier update set."""
        return tuple(sorted(self._updates))

    def as_properties(self) -> bytes:
        """All keys and values, sorted, one `k=v` a line (1010, 319)."""
        return properties.dump(to_text_values(self.settings))

    def update(self, body: bytes) -> Answer:
        """Take `k=v` lines (1009, 318); nothing changes unless all of it can and is on disk.

        Codes: 0; 1 the file cannot be written; 16 a key on the black list; `wrong_value`.

        Raises:
            BodyError: not properties text.
        """
        decided = update_config(
            properties.parse(body),
            known_keys=self._spec.__struct_encode_fields__,
            config_black_list=self.settings.black_list,
            validate=self._why_not,
            wrong_value=self._wrong_value,
        )
        if decided.code is not ResponseCode.SUCCESS or not decided.values:
            return Answer(decided.code, decided.remark)
        updates = {**self._updates, **decided.values}
        try:
            self._write(self.settings.update_path, properties.dump(updates))
        except StorageError as error:
            log.error("configuration update not kept, so not done", reason=str(error))
            return Answer(ResponseCode.SYSTEM_ERROR, f"the update could not be written: {error}")
        self._updates = updates
        self.settings = self._build(updates)
        for key, value in sorted(decided.values.items()):
            effective = "now" if key in self._at_once else "after restart"
            log.info("configuration updated", key=key, value=value, effective=effective)
        for listener in self._listeners:
            listener(self.settings)
        return Answer(ResponseCode.SUCCESS)

    def _why_not(self, values: Mapping[str, str]) -> str | None:
        try:
            settings = self._build({**self._updates, **values})
        except SettingsError as error:
            return str(error)
        overridden = sorted(key for key in values if key in self._environment)
        if overridden:
            return f"{', '.join(overridden)}: set in this process's environment, which comes before updates"
        return self._objection(self.settings, settings)

    def _build(self, updates: Mapping[str, str]) -> S:
        return build_settings(self._spec, self._file_values, updates, self._environment).settings
