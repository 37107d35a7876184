"""updateControllerConfig (1009), updateNamesrvConfig (318): which keys of an update are taken. Used by live_config.py.

Order as in Java: the black list is looked at first, for all keys, then only keys that are known are merged.
Differs from 5.3.3: a value that does not fit its key refuses the whole update with the key's name; Java drops it
silently and says success. Keys that say where the process listens, whom it trusts and where its files are cannot be
changed over the network; Java takes them.
"""

from collections.abc import Callable, Collection, Mapping

import msgspec

from rocketmq_formats.codes import ResponseCode

ALWAYS_BLACK_LISTED = frozenset({"configBlackList", "configStorePath", "rocketmqHome"})
"""Keys refused whatever the configBlackList setting says."""

Validator = Callable[[Mapping[str, str]], str | None]
"""Given the values to be merged: what is wrong with them, naming the key; None if they may take effect."""


class ConfigUpdate(msgspec.Struct, frozen=True):
    """The answer, and on success the values to lay over the present ones (known keys only, maybe none)."""

    code: ResponseCode
    remark: str | None = None
    values: Mapping[str, str] = {}


def update_config(
    update: Mapping[str, str],
    *,
    known_keys: Collection[str],
    config_black_list: str,
    machine_only: Collection[str] = (),
    validate: Validator,
    wrong_value: ResponseCode,
) -> ConfigUpdate:
    """Decide on the parsed body of an update. Codes: 0, 16 black list or `machine_only`, `wrong_value`.

    `config_black_list`: keys separated by semicolons. `machine_only`: keys that only the configuration file can change.
    """
    black = ALWAYS_BLACK_LISTED.union(key.strip() for key in config_black_list.split(";"))
    if not black.isdisjoint(update):
        return ConfigUpdate(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    refused = sorted(update.keys() & frozenset(machine_only))
    if refused:
        remark = f"{', '.join(refused)}: only the configuration file can change this, with a restart"
        return ConfigUpdate(ResponseCode.NO_PERMISSION, remark)
    values = {key: value for key, value in update.items() if key in known_keys}
    wrong = validate(values)
    if wrong is not None:
        return ConfigUpdate(wrong_value, wrong)
    return ConfigUpdate(ResponseCode.SUCCESS, None, values)
