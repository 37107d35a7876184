"""Settings that all replicas of a group share: a slave compares its own with its master's before it follows. Pure; for
`follower`.

    mappedFileSizeCommitLog   a copy in files of another size cannot be read: the slave does not follow
    enableControllerMode      nor if only one of the two has controllers
    messageDelayLevel         copies are good, but the group promises something else after a failover; a rolling
    durability                update changes these replica by replica, so a difference is reported and nothing more
    maxMessageSize

An official master does not name its settings (906 has no room for them), so nothing is compared with it.
"""

import msgspec

from rocketmq_formats.remoting.ha_info import ExchangeHAInfoHeader
from rocketmq_sidecar.domain.replication.truncate import TruncationError


class OtherFileSizeError(TruncationError):
    """The master's files have another size than this replica's."""


class OtherModeError(TruncationError):
    """One of the two replicas has controllers, the other has none."""


class GroupSettings(msgspec.Struct, frozen=True):
    """This replica's. `file_size` in bytes."""

    file_size: int
    delay_levels: str
    durability: str
    max_message_size: int | None = None
    """None: the broker has not said it."""
    controllers: bool = True
    """enableControllerMode."""


def differences(ours: GroupSettings, master: ExchangeHAInfoHeader) -> tuple[str, ...]:
    """What differs from the master's, with both values, and does not keep this replica from following.

    Raises:
        OtherFileSizeError, OtherModeError: this replica must not follow.
    """
    controllers = master.enable_controller_mode is not False
    if controllers is not ours.controllers:
        raise OtherModeError(
            f"enableControllerMode is {str(ours.controllers).lower()} here and {str(controllers).lower()} at the "
            "master, or the master is no native replica: stop all replicas of the group and set it to the same value"
        )
    size = master.mapped_file_size_commit_log
    if size not in {None, ours.file_size}:
        raise OtherFileSizeError(
            f"mappedFileSizeCommitLog is {ours.file_size} here and {size} at the master: a copy could not be read. "
            "Set it to the same value on all replicas of a group, and begin the replica that differs with an empty "
            "store"
        )
    pairs = {
        "messageDelayLevel": (ours.delay_levels, master.message_delay_level),
        "durability": (ours.durability, master.durability),
        "maxMessageSize": (ours.max_message_size, master.max_message_size),
    }
    return tuple(
        f"{key} is {mine!r} here and {theirs!r} at the master"
        for key, (mine, theirs) in pairs.items()
        if mine is not None and theirs is not None and mine != theirs
    )
