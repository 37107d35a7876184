"""RocketMQ keys that spec.config may not set, because a field of the resource or the operator itself decides them.

Each key is declared with what sets it (`rocketmq_settings`). The rules of crds/*.yaml and the parse functions come from
these tables.
"""

from collections.abc import Mapping
from typing import Final

from rocketmq_formats.security_keys import IGNORE_SECURITY_KEYS, promised_protection
from rocketmq_resources.decoding import SpecError
from rocketmq_settings.broker import BrokerKeys
from rocketmq_settings.controller import ControllerKeys
from rocketmq_settings.declare import OPERATOR
from rocketmq_settings.java_keys import missing_store
from rocketmq_settings.name_server import NameServerKeys
from rocketmq_settings.sidecar import SidecarKeys
from rocketmq_settings.table import creation_only, set_elsewhere

BROKER: Final[Mapping[str, str]] = {
    **set_elsewhere(BrokerKeys, SidecarKeys),
    "controllerAddress": "spec.controllerRef or spec.controllerAddr",
    "fetchNamesrvAddrByAddressServer": OPERATOR,
}
"""Key -> who sets it instead. A BrokerGroup's, with two keys that only official brokers read."""

BROKER_CREATION_ONLY: Final = creation_only(BrokerKeys)
"""May be set when a group is made and never changed: files of another size cannot be read."""

CONTROLLER: Final[Mapping[str, str]] = {
    **set_elsewhere(NameServerKeys, ControllerKeys),
    "enableControllerInNamesrv": "spec.embeddedInNameServer",
}
"""A ControllerCluster's; with embedded name servers their keys come beside the controllers'."""

NAME_SERVER: Final[Mapping[str, str]] = set_elsewhere(NameServerKeys)
"""A NameServer's."""


def instead(decider: str) -> str:
    """What a user can do instead, for a value of the tables."""
    if decider == OPERATOR:
        return "the operator sets it"
    return f"{'set' if decider.startswith('spec.') else 'use'} {decider} instead"


def check_promises(config: Mapping[str, str]) -> None:
    """Refuse what would refuse the start of every pod.

    Raises:
        SpecError: a key switches a protection on, or names a store, that the processes do not have.
    """
    missing = missing_store(config)
    if missing is not None:
        key, _, why = missing.partition("=")
        raise SpecError(f"spec.config.{key}", why)
    promised = promised_protection(config)
    if promised is not None:
        raise SpecError(
            f"spec.config.{promised}",
            f"there is no such protection with our engine: remove the key, or set {IGNORE_SECURITY_KEYS}",
        )
