"""Configuration as RocketMQ users know it: a Java properties file, `ROCKETMQ_<KEY>` from the environment over it,
typed and checked.

Each process has one frozen settings struct (`rocketmq_settings`). Unknown keys are reported and ignored, because a Java
configuration file carries keys of parts that we do not have; a wrong value is refused with the key's name and where it
is written. Numbers and booleans are spelled as Java spells them; what Java silently passes over for its default, or
takes for false, is refused, except blanks around a number, which do not count.
Source: rocketmq-all-5.3.3: MixAll.java.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import structlog

from rocketmq_formats import properties
from rocketmq_formats.errors import BodyError
from rocketmq_formats.security_keys import IGNORE_SECURITY_KEYS, SECURITY_KEYS, promised_protection
from rocketmq_settings.declare import OTHER_NAMES, Settings

log = structlog.get_logger(__name__)

ENVIRONMENT_PREFIX = "ROCKETMQ_"

_BLANKS = "".join(map(chr, range(33)))
"""What Java's trim removes."""
_INT = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_FLOAT = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?", re.ASCII)
_BOOL = {"true": True, "false": False}
_NO_PATH = re.compile(r"""^["']|["']$|\$[A-Za-z_{(]|\\|[\x00-\x1f\x7f]|^[A-Za-z]:/|^[A-Za-z][A-Za-z0-9+.-]+:/""")
"""Quotes around it, a variable, a backslash, a control character that was an escape, a drive or a URL."""
_WORD = re.compile(r"\w+(?:\.\w+)*")


class SettingsError(Exception):
    """A configuration that the process cannot run with; the text names the key and the way out."""


S = TypeVar("S", bound=Settings)


class Placed(dict[str, str]):
    """Values by key that know where each was written: messages say it."""

    def __init__(self, values: Mapping[str, str], places: Mapping[str, str]) -> None:
        super().__init__(values)
        self.places = places


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
        report_misread(self.settings, file)


def read_properties_file(path: Path) -> Placed:
    """The file's keys and values.

    Raises:
        SettingsError: the file cannot be read, or is no properties text.
    """
    try:
        found = {entry.key: entry for entry in properties.entries(path.read_bytes())}
    except (OSError, BodyError) as error:
        raise SettingsError(f"cannot read configuration file {path}: {error}") from error
    places = {key: f"{path} line {entry.line}" for key, entry in found.items()}
    return Placed({key: entry.value for key, entry in found.items()}, places)


def from_environment(spec: type[S], environ: Mapping[str, str] = os.environ) -> Placed:
    """Values of `ROCKETMQ_<KEY>`, by configuration key. Case and underscores after the prefix do not count, so both
    `ROCKETMQ_controllerRaftPort` and `ROCKETMQ_CONTROLLER_RAFT_PORT` set controllerRaftPort; other variables with the
    prefix (Kubernetes makes some for its services) are none of our business."""
    by_folded = {_fold(key): key for key in (*SECURITY_KEYS, IGNORE_SECURITY_KEYS, *spec.__struct_encode_fields__)}
    by_folded.update((_fold(name), key) for name, key in OTHER_NAMES.items() if key in by_folded.values())
    values: dict[str, str] = {}
    places: dict[str, str] = {}
    for variable, value in environ.items():
        if variable.startswith(ENVIRONMENT_PREFIX):
            key = by_folded.get(_fold(variable.removeprefix(ENVIRONMENT_PREFIX)))
            if key is not None:
                values[key], places[key] = value, variable
    return Placed(values, places)


def report_unknown(keys: Iterable[str], file: str) -> None:
    """Log that these keys are ignored; of Java's own keys, why."""
    unknown = tuple(keys)
    if not unknown:
        return
    from rocketmq_settings.java_keys import reason  # noqa: PLC0415 - the keys of all processes: not for every command

    for key in unknown:
        because = reason(key)
        if because is None:
            log.warning("configuration key is not known and ignored", key=key, file=file)
        else:
            log.info("configuration key has no effect", key=key, because=because, file=file)


def report_without_effect(settings: Settings, file: str) -> None:
    """Log the keys that were set and switch nothing here, each with what takes its place."""
    from rocketmq_settings.table import without_effect  # noqa: PLC0415 - as in `report_unknown`

    for key, meaning in without_effect(settings).items():
        log.info("configuration key has no effect", key=key, because=meaning, file=file)


def report_misread(settings: Settings, file: str) -> None:
    """Log the values that look like UTF-8: they are other characters to RocketMQ, so here too."""
    for key, text in to_text_values(settings).items():
        try:
            meant = text.encode("latin-1").decode()
        except UnicodeError:
            continue
        if meant != text:
            instead = properties.dump({key: meant}).decode().strip().partition("=")[2]
            log.warning("configuration value is read as ISO-8859-1, as in Java", key=key, write=instead, file=file)


def load_settings(
    spec: type[S],
    path: Path | None,
    *,
    known_elsewhere: AbstractSet[str] = frozenset(),
    check: Callable[[S], None] | None = None,
) -> Loaded[S]:
    """Settings from a configuration file, if there is one, and the environment.

    Args:
        check: what only this host can tell of the values; raises ValueError with the key.

    Raises:
        SettingsError: as `read_properties_file` and `build_settings`.
    """
    file = {} if path is None else read_properties_file(path)
    return build_settings(spec, file, from_environment(spec), known_elsewhere=known_elsewhere, check=check)


def build_settings(
    spec: type[S],
    *layers: Mapping[str, str],
    known_elsewhere: AbstractSet[str] = frozenset(),
    check: Callable[[S], None] | None = None,
) -> Loaded[S]:
    """Settings from `layers` of key -> text, later ones over earlier ones. Keys in `known_elsewhere` are another
    process's that reads the same file. `check`: as in `load_settings`.

    Raises:
        SettingsError: a value does not parse, is out of range, contradicts another, or promises a protection that is
            not there (`security_keys`) or a store that is not (`java_keys`); the text has the key's name.
    """
    known = set(spec.__struct_encode_fields__)
    merged, places = _merge(layers, {name: key for name, key in OTHER_NAMES.items() if key in known})
    unknown = tuple(sorted(merged.keys() - known - known_elsewhere - {IGNORE_SECURITY_KEYS}))
    values = {key: text for key, text in merged.items() if key in known}
    try:
        settings = msgspec.convert(_typed(spec, values), spec)
        if not settings.beside_java_broker:
            _check_paths(spec, values)
            _check_promises({key: text for key, text in merged.items() if key not in known})
        if check is not None:
            check(settings)
    except (ValueError, msgspec.ValidationError) as error:
        problem, _, key = str(error).partition(" - at `$.")
        if key:
            key = key.rstrip("`")
            problem = f"{key}={values[key][:200]!r}: {problem.removesuffix(', got `str`')}"
        where = dict.fromkeys(places[word] for word in _WORD.findall(problem) if word in places)
        raise SettingsError(f"{', '.join(where)}: {problem}" if where else problem) from error
    return Loaded(settings, unknown)


def _check_paths(spec: type[Settings], values: Mapping[str, str]) -> None:
    """A file or folder of that name would be made, and its content searched elsewhere.

    Raises:
        ValueError: no path of this system.
    """
    for field, kind in _fields(spec):
        text = values.get(field.encode_name)
        if text is None or not _facts(kind).get("path"):
            continue
        if _NO_PATH.search(text) or (not text and field.default):
            raise ValueError(
                f"{field.encode_name}={text[:200]!r} is no path: quotes, variables and URLs are taken as they are, and "
                "a backslash begins an escape, as in Java's files"
            )


def _check_promises(unknown: Mapping[str, str]) -> None:
    if not unknown:
        return
    from rocketmq_settings.java_keys import missing_store  # noqa: PLC0415 - as in `report_unknown`

    missing = missing_store(unknown)
    if missing is not None:
        raise ValueError(missing)
    promised = promised_protection(unknown)
    if promised is not None:
        raise ValueError(
            f"{promised}={unknown[promised]}: there is no such protection here, any client that reaches the ports would"
            f" be served; remove the key, or set {IGNORE_SECURITY_KEYS}=true to start without it (docs/security.md)"
        )


def _merge(layers: Iterable[Mapping[str, str]], other: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Texts by key, and where they are written. `other`: other name -> key; where a layer has both, the key wins."""
    merged: dict[str, str] = {}
    places: dict[str, str] = {}
    for layer in layers:
        written = layer.places if isinstance(layer, Placed) else {}
        for name in sorted(layer, key=lambda name: name not in other):
            key = other.get(name, name)
            merged[key] = layer[name].strip(_BLANKS)
            places[key] = written.get(name, "")
    return merged, {key: place for key, place in places.items() if place}


def _typed(spec: type[Settings], values: Mapping[str, str]) -> dict[str, object]:
    """The texts as the types of their keys; another text stays as it is, and msgspec refuses it with the key.

    Raises:
        ValueError: a NUL in a text: as an address or a path it would end the process with a traceback.
    """
    typed: dict[str, object] = {}
    for field, declared in _fields(spec):
        text = values.get(field.encode_name)
        if text is None:
            continue
        if "\0" in text:
            raise ValueError(f"{field.encode_name}: a value cannot contain a NUL character")
        kind = declared
        while isinstance(kind, msgspec.inspect.Metadata):
            kind = kind.type
        value = _as_java_reads(text, kind)
        typed[field.encode_name] = 1 if _facts(declared).get("zero_is_one") and value == 0 else value
    return typed


def _fields(spec: type[Settings]) -> Iterator[tuple[msgspec.inspect.Field, msgspec.inspect.Type]]:
    """Each field with its type as it is declared."""
    info = msgspec.inspect.type_info(spec)
    assert isinstance(info, msgspec.inspect.StructType), "a settings class is a struct"
    for field in info.fields:
        yield field, field.type


def _facts(kind: msgspec.inspect.Type) -> dict[str, object]:
    """What `key` says of a field."""
    found: dict[str, object] = {}
    while isinstance(kind, msgspec.inspect.Metadata):
        found |= kind.extra or {}
        kind = kind.type
    return found


def _as_java_reads(text: str, kind: msgspec.inspect.Type) -> object:
    match kind:
        case msgspec.inspect.BoolType():
            return _BOOL.get(text.lower(), text)
        case msgspec.inspect.IntType() if _INT.fullmatch(text) and -(2**63) <= int(text) < 2**63:
            return int(text)
        case msgspec.inspect.FloatType() if found := _FLOAT.fullmatch(text):
            return float(found[1])
    return text


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
    from rocketmq_settings.table import group_wide  # noqa: PLC0415 - as in `report_unknown`

    wide = group_wide(type(settings))
    return {key: text for key, text in to_text_values(settings).items() if key in wide}


def _fold(key: str) -> str:
    return key.replace("_", "").lower()
