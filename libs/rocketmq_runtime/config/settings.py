"""Configuration as RocketMQ users know it: a Java properties file, `ROCKETMQ_<KEY>` from the environment over it,
typed and checked.

Each process has one frozen settings struct (`rocketmq_settings`). Unknown keys are reported and ignored, because a Java
configuration file carries keys of parts that we do not have; a wrong value is refused with the key's name.
"""

import os
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import structlog

from rocketmq_formats import properties
from rocketmq_formats.errors import BodyError
from rocketmq_formats.security_keys import IGNORE_SECURITY_KEYS, SECURITY_KEYS, promised_protection
from rocketmq_settings.declare import OTHER_NAMES, Settings
from rocketmq_settings.table import group_wide, without_effect

log = structlog.get_logger(__name__)

ENVIRONMENT_PREFIX = "ROCKETMQ_"


class SettingsError(Exception):
    """A configuration that the process cannot run with; the text names the key and the way out."""


S = TypeVar("S", bound=Settings)


class Loaded(msgspec.Struct, Generic[S], frozen=True):
    """Settings, and the keys that were ignored."""

    settings: S
    unknown_keys: tuple[str, ...]

    def as_properties(self) -> bytes:
        """Every key with its value, sorted, one `k=v` a line."""
        return properties.dump(to_text_values(self.settings))

    def report(self, file: str) -> None:
        """Log what was ignored."""
        report_unknown(self.unknown_keys, file)
        report_without_effect(self.settings, file)


def read_properties_file(path: Path) -> dict[str, str]:
    """The file's keys and values.

    Raises:
        SettingsError: the file cannot be read or is not text.
    """
    try:
        return properties.parse(path.read_bytes())
    except (OSError, BodyError) as error:
        raise SettingsError(f"cannot read configuration file {path}: {error}") from error


def from_environment(spec: type[S], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Values of `ROCKETMQ_<KEY>`, by configuration key. Case and underscores after the prefix do not count, so both
    `ROCKETMQ_controllerRaftPort` and `ROCKETMQ_CONTROLLER_RAFT_PORT` set controllerRaftPort; other variables with the
    prefix (Kubernetes makes some for its services) are none of our business."""
    by_folded = {_fold(key): key for key in (*SECURITY_KEYS, IGNORE_SECURITY_KEYS, *spec.__struct_encode_fields__)}
    by_folded.update((_fold(name), key) for name, key in OTHER_NAMES.items() if key in by_folded.values())
    values: dict[str, str] = {}
    for variable, value in environ.items():
        if variable.startswith(ENVIRONMENT_PREFIX):
            key = by_folded.get(_fold(variable.removeprefix(ENVIRONMENT_PREFIX)))
            if key is not None:
                values[key] = value
    return values


def report_unknown(keys: Iterable[str], file: str) -> None:
    """Log that these keys are ignored."""
    for key in keys:
        log.warning("configuration key is not known and ignored", key=key, file=file)


def report_without_effect(settings: Settings, file: str) -> None:
    """Log the keys that were set and switch nothing here, each with what takes its place."""
    for key, meaning in without_effect(settings).items():
        log.info("configuration key has no effect", key=key, because=meaning, file=file)


def load_settings(spec: type[S], path: Path | None, *, known_elsewhere: AbstractSet[str] = frozenset()) -> Loaded[S]:
    """Settings from a configuration file, if there is one, and the environment.

    Raises:
        SettingsError: as `read_properties_file` and `build_settings`.
    """
    file = {} if path is None else read_properties_file(path)
    return build_settings(spec, file, from_environment(spec), known_elsewhere=known_elsewhere)


def build_settings(
    spec: type[S], *layers: Mapping[str, str], known_elsewhere: AbstractSet[str] = frozenset()
) -> Loaded[S]:
    """Settings from `layers` of key -> text, later ones over earlier ones. Keys in `known_elsewhere` are another
    process's that reads the same file.

    Raises:
        SettingsError: a value does not parse, is out of range, contradicts another, or promises a protection that is
            not there (`security_keys`); the text has the key's name.
    """
    known = set(spec.__struct_encode_fields__)
    other = {name: key for name, key in OTHER_NAMES.items() if key in known}
    merged: dict[str, str] = {}
    for layer in layers:
        merged.update((other[name], layer[name].strip()) for name in other.keys() & layer.keys())
        merged.update((key, value.strip()) for key, value in layer.items() if key not in other)
    unknown = tuple(sorted(merged.keys() - known - known_elsewhere - {IGNORE_SECURITY_KEYS}))
    for key in sorted(merged.keys() & known):
        if "\0" in merged[key]:
            raise SettingsError(f"{key}: a value cannot contain a NUL character")
    try:
        settings = msgspec.convert({key: value for key, value in merged.items() if key in known}, spec, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(str(error).replace(" - at `$.", " - at key `")) from error
    promised = promised_protection({key: value for key, value in merged.items() if key not in known})
    if promised is not None and not settings.beside_java_broker:
        raise SettingsError(
            f"{promised}={merged[promised]}: there is no such protection here, any client that reaches the ports would"
            f" be served; remove the key, or set {IGNORE_SECURITY_KEYS}=true to start without it (docs/security.md)"
        )
    return Loaded(settings, unknown)


def to_text_values(settings: Settings) -> dict[str, str]:
    """Every key with its value as text, sorted by key; None is left out, booleans are `true` and `false`."""
    values: dict[str, str] = {}
    for name, key in sorted(
        zip(settings.__struct_fields__, settings.__struct_encode_fields__, strict=True), key=lambda pair: pair[1]
    ):
        value = getattr(settings, name)
        if value is not None:
            values[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return values


def group_values(settings: Settings) -> dict[str, str]:
    """Of `to_text_values` what is equal on all replicas of a group."""
    wide = group_wide(type(settings))
    return {key: text for key, text in to_text_values(settings).items() if key in wide}


def _fold(key: str) -> str:
    return key.replace("_", "").lower()
