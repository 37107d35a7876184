"""How a key is declared, and the types that several keys share. Times are milliseconds, sizes bytes, as in Java."""

from typing import Annotated, Final, Literal

import msgspec

OPERATOR: Final = "the operator"
"""For `set_by`."""

OTHER_NAMES: Final = {
    "bindAddress": "controllerListenHost",
    "controllerAddress": "controllerAddr",
    "enableUncleanMasterElect": "enableElectUncleanMaster",
    "haMaxTimeSlaveNotCatchUp": "haMaxTimeSlaveNotCatchup",
    "isAsyncLearner": "asyncLearner",
    "processReadEvent": "isProcessReadEvent",
}
"""Other names of keys, for processes that do not have a key of the first name: RIP-44's spellings, and 5.3.3's names
where they are not ours (a Java controller's file has bindAddress and processReadEvent). The second name wins in a file
with both."""

Change = Literal["at once", "next start"]
"""When a value that a tool has changed takes effect (updateControllerConfig, updateNamesrvConfig)."""


class Settings(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Base of all settings structs; `__post_init__` raises ValueError for values that contradict each other."""

    @property
    def beside_java_broker(self) -> bool:
        """Whether an official broker reads the same file and does what its security keys say."""
        return False


def key(
    meaning: str,
    *,
    default: str | None = None,
    set_by: str | None = None,
    creation_only: bool = False,
    change: Change | None = None,
    without_effect: bool = False,
    group_wide: bool = False,
    zero_is_one: bool = False,
    path: bool = False,
) -> msgspec.Meta:
    """The metadata of one key, for `Annotated`.

    Args:
        meaning: one sentence for users.
        default: what stands for an empty value or 0, in words.
        set_by: the field of the Kubernetes resource, or the operator; spec.config then refuses the key.
        creation_only: spec.config may have it when the resource is made and may not change it.
        change: None: only the configuration file and the environment can set it.
        without_effect: accepted because Java's files carry it.
        group_wide: equal on all replicas of a group, because it is part of what the group promises.
            Slaves compare it with their master's.
        zero_is_one: 0 counts as 1, as in Java.
        path: it names a file or folder.
    """
    facts = {
        "default": default,
        "set_by": set_by,
        "creation_only": creation_only,
        "change": change,
        "without_effect": without_effect,
        "group_wide": group_wide,
        "zero_is_one": zero_is_one,
        "path": path,
    }
    return msgspec.Meta(description=meaning, extra={name: fact for name, fact in facts.items() if fact})


Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Millis = Annotated[int, msgspec.Meta(ge=1, le=86_400_000, extra={"unit": "ms"})]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Connections = Annotated[int, msgspec.Meta(ge=10, le=1_000_000)]
CONNECTIONS: Final = 10_000
"""Of a remoting port."""
NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]

LogFormat = Literal["json", "console"]
LogLevel = Literal["debug", "info", "warning", "error"]

HOME: Final = key("Java finds its installation folder with it.", without_effect=True)
