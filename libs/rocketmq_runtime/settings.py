"""Configuration as RocketMQ users know it: a Java properties file, `ROCKETMQ_<KEY>` from the environment over it,
typed and checked.

Each process has one frozen settings struct (camelCase keys, a docstring under every field). Unknown keys are reported
and ignored, because a Java configuration file carries keys of parts that we do not have; a wrong value is refused with
the key's name.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from rocketmq_formats import properties
from rocketmq_formats.errors import BodyError

ENVIRONMENT_PREFIX = "ROCKETMQ_"

OTHER_NAMES: Final = {
    "enableUncleanMasterElect": "enableElectUncleanMaster",
    "haMaxTimeSlaveNotCatchUp": "haMaxTimeSlaveNotCatchup",
    "isAsyncLearner": "asyncLearner",
}
"""What RIP-44 and the design document also call keys that 5.3.3 reads under the second name; that one wins in a file
with both."""


class SettingsError(Exception):
    """A configuration that the process cannot run with; the text names the key and the way out."""


class Settings(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Base of the processes' settings structs; `__post_init__` raises ValueError for values that contradict each
    other."""


S = TypeVar("S", bound=Settings)


class Loaded(msgspec.Struct, Generic[S], frozen=True):
    """Settings with where they came from: keys nobody knows, to be reported once."""

    settings: S
    unknown_keys: tuple[str, ...]


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
    by_folded = {_fold(key): key for key in spec.__struct_encode_fields__}
    by_folded.update((_fold(name), key) for name, key in OTHER_NAMES.items() if key in by_folded.values())
    values: dict[str, str] = {}
    for variable, value in environ.items():
        if variable.startswith(ENVIRONMENT_PREFIX):
            key = by_folded.get(_fold(variable.removeprefix(ENVIRONMENT_PREFIX)))
            if key is not None:
                values[key] = value
    return values


def build_settings(spec: type[S], *layers: Mapping[str, str]) -> Loaded[S]:
    """Settings from `layers` of key -> text, later ones over earlier ones.

    Raises:
        SettingsError: a value does not parse, is out of range, or contradicts another; the text has the key's name.
    """
    known = set(spec.__struct_encode_fields__)
    other = {name: key for name, key in OTHER_NAMES.items() if key in known}
    merged: dict[str, str] = {}
    for layer in layers:
        merged.update((other[name], layer[name].strip()) for name in other.keys() & layer.keys())
        merged.update((key, value.strip()) for key, value in layer.items() if key not in other)
    unknown = tuple(sorted(merged.keys() - known))
    try:
        settings = msgspec.convert({key: value for key, value in merged.items() if key in known}, spec, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(str(error).replace(" - at `$.", " - at key `")) from error
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


def _fold(key: str) -> str:
    return key.replace("_", "").lower()
