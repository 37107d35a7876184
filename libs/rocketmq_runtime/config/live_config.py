"""The settings a process runs with while tools change them: updateControllerConfig (1009), updateNamesrvConfig (318).

Updates are checked as a whole, written to a file of their own before they take effect, and laid over the configuration
file at the next start. They concern this process only, as in Java. Used by controllers and name servers, which define
what may not be changed.

Anyone who reaches the port may send updates. They are written one after the other, in a thread, and only a few per
second, so that they block neither the event loop nor the disk.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec
import structlog

from rocketmq_formats import properties
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.errors import BodyError
from rocketmq_formats.shares import Shares
from rocketmq_runtime.config.config_update import update_config
from rocketmq_runtime.config.settings import (
    SettingsError,
    build_settings,
    read_properties_file,
    report_misread,
    report_unknown,
    report_without_effect,
    to_text_values,
)
from rocketmq_runtime.files.atomic_file import write_atomically
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_settings.declare import Settings
from rocketmq_settings.table import rows

log = structlog.get_logger(__name__)

MAX_BODY: Final = 64 * 1024
"""Bytes of one update."""
MAX_WAITING: Final = 16
"""Updates of all hosts that may wait for their turn, each host with its share; more are answered with SYSTEM_BUSY."""
PAUSE: Final = 0.2
"""Seconds from one write to the next: other files share the disk, as the journal of a controller."""


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
        wrong_value: ResponseCode,
        write: Callable[[Path, bytes], None] = write_atomically,
    ) -> None:
        """Settings from the file's values, the kept updates, and the environment, in this order. Kept updates of keys
        that only the file and the environment can set do not count.

        Args:
            wrong_value: what an update with a value that is refused is answered with.
            write: keeps the updates; raises StorageError.

        Raises:
            SettingsError: a value of the file or the environment that does not parse, values that contradict each
                other, or kept updates that cannot be looked for.
        """
        self._spec, self._wrong_value = spec, wrong_value
        table = rows(spec)
        self._at_once = frozenset(row.key for row in table if row.change == "at once")
        self._machine_only = frozenset(row.key for row in table if row.change is None)
        self._write = write
        self._file_values, self._environment = file_values, environment
        self._updates: dict[str, str] = {}
        loaded = build_settings(spec, file_values, environment)
        self.settings: S = loaded.settings
        self._unknown_keys = loaded.unknown_keys
        path = self.settings.update_path
        try:
            kept = path.exists()  # a folder is refused when it is read
        except OSError as error:
            raise SettingsError(f"{error}: the user of this process must be able to read and write there") from error
        self.ignored_updates: dict[str, str] = {}
        """Keys that an earlier update set and that do not count, with the reason."""
        if kept:
            self._take_kept(read_properties_file(path))
        self._listeners: list[Callable[[S], None]] = []
        self._turn = asyncio.Lock()
        self._waiting = Shares(MAX_WAITING, "configuration updates")
        self._written_at = float("-inf")

    def on_update(self, listener: Callable[[S], None]) -> None:
        """Call `listener` with the new settings after each update."""
        self._listeners.append(listener)

    @property
    def kept_updates(self) -> tuple[str, ...]:
        """Keys that an earlier update set."""
        return tuple(sorted(self._updates))

    @property
    def unknown_keys(self) -> tuple[str, ...]:
        """Keys of the file that mean nothing here."""
        return self._unknown_keys

    def report(self, file: str) -> None:
        """Log what was ignored, and what an earlier update set."""
        report_unknown(self.unknown_keys, file)
        report_without_effect(self.settings, file)
        report_misread(self.settings, file)
        for key in self.kept_updates:
            log.info("configuration key comes from an earlier update", key=key)
        for key, reason in self.ignored_updates.items():
            log.warning("configuration key of an earlier update ignored", key=key, reason=reason)

    def as_properties(self) -> bytes:
        """All keys and values, sorted, one `k=v` a line (1010, 319)."""
        return properties.dump(to_text_values(self.settings))

    async def update(self, body: bytes, *, host: str = "") -> Answer:
        """Take `k=v` lines (1009, 318) of `host`; nothing changes unless all of it can and is on disk.

        Codes: 0; 1 the file cannot be written; 2 too many updates wait already, of all hosts or of this one; 16 a key
        on the black list or one that only the machine's configuration may set; `wrong_value`.

        Raises:
            BodyError: not properties text, or more than MAX_BODY bytes.
        """
        if len(body) > MAX_BODY:
            raise BodyError(f"an update of {len(body)} bytes is more than {MAX_BODY}")
        wanted = properties.parse(body)
        full = self._waiting.why_not(host)
        if full is not None:
            return Answer(ResponseCode.SYSTEM_BUSY, f"configuration updates wait already, try again: {full}")
        self._waiting.put(host)
        try:
            async with self._turn:
                return await self._update(wanted)
        finally:
            self._waiting.remove(host)

    async def _update(self, wanted: Mapping[str, str]) -> Answer:
        decided = update_config(
            wanted,
            known_keys=self._spec.__struct_encode_fields__,
            config_black_list=self.settings.black_list,
            machine_only=self._machine_only,
            validate=self._why_not,
            wrong_value=self._wrong_value,
        )
        updates = {**self._updates, **decided.values}
        if decided.code is not ResponseCode.SUCCESS or updates == self._updates:
            return Answer(decided.code, decided.remark)
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._written_at + PAUSE - loop.time())
        try:
            await asyncio.to_thread(self._write, self.settings.update_path, properties.dump(updates))
        except StorageError as error:
            log.error("configuration update not kept, so not done", reason=str(error))
            return Answer(ResponseCode.SYSTEM_ERROR, f"the update could not be written: {error}")
        finally:
            self._written_at = loop.time()
        self._updates = updates
        self.settings = self._build(updates)
        for key, value in sorted(decided.values.items()):
            effective = "now" if key in self._at_once else "after restart"
            log.info("configuration updated", key=key, value=value, effective=effective)
        for listener in self._listeners:
            listener(self.settings)
        return Answer(ResponseCode.SUCCESS)

    def _take_kept(self, kept: Mapping[str, str]) -> None:
        """Lay kept updates over the rest, each that still may be: none of them can keep the process from starting."""
        for key, value in sorted(kept.items()):
            if key in self._machine_only:
                self.ignored_updates[key] = "only the configuration file and the environment can set it"
                continue
            updates = {**self._updates, key: value}
            try:
                self.settings = self._build(updates)
            except SettingsError as error:
                self.ignored_updates[key] = str(error)
            else:
                self._updates = updates

    def _why_not(self, values: Mapping[str, str]) -> str | None:
        try:
            self._build({**self._updates, **values})
        except SettingsError as error:
            return str(error)
        overridden = sorted(key for key in values if key in self._environment)
        if overridden:
            return f"{', '.join(overridden)}: set in this process's environment, which comes before updates"
        return None

    def _build(self, updates: Mapping[str, str]) -> S:
        return build_settings(self._spec, self._file_values, updates, self._environment).settings
