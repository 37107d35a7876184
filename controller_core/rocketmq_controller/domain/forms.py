"""The forms of what is replicated: events and records may get fields at their end, and members of two releases run
beside each other during an upgrade.

A field that was appended has a default, which means what the form before meant. Fields at the end that have their
default are not written, so values without new information are written as before, and a member of any release reads
them. Others have a higher feature level: the leader proposes them only when all members can read that level
(`log.pipeline`). A member that meets a form it cannot read stops: otherwise the members would diverge
(ReplayEqual).

| level | fields |
|---|---|
| 1 | as first released |
| 2 | all that were appended since: the hosts that registered groups and members |
"""

from typing import Final

import msgspec

FIRST_LEVEL: Final = 1
APPENDED_LEVEL: Final = 2
FEATURE_LEVEL: Final = APPENDED_LEVEL
"""The highest level that this release reads and writes."""


def shortened(value: msgspec.Struct) -> "msgspec.Struct | list[object]":
    """An `array_like` struct as it is written down: without the fields at its end that have their default."""
    defaults = value.__struct_defaults__
    if not defaults:
        return value
    fields: list[object] = list(msgspec.structs.astuple(value))
    for default in reversed(defaults):
        if fields[-1] != default:
            break
        fields.pop()
    tag = value.__struct_config__.tag
    return fields if tag is None else [tag, *fields]


def level_of(value: msgspec.Struct) -> int:
    """The lowest feature level at which the value can be read."""
    if not value.__struct_defaults__:
        return FIRST_LEVEL
    required = len(value.__struct_fields__) - len(value.__struct_defaults__)
    appended = msgspec.structs.astuple(value)[required:]
    return FIRST_LEVEL if appended == value.__struct_defaults__ else APPENDED_LEVEL
