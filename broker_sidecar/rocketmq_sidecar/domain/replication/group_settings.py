"""Settings that all replicas of a group share: a slave compares its own with its master's before it follows. Pure; for
`follower`. Which they are is said where the keys are declared (`group_wide`).

Two keep a slave away: in files of another size (mappedFileSizeCommitLog) a copy cannot be read, and
enableControllerMode says who decides which replica is master. Whatever the others are, copies are good, but the group
promises something else, at the latest after a failover. A rolling update changes these replica by replica, and would
stop at the first one if a slave with other values did not follow or were not ready. So a difference is reported, in the
log and in what the sidecar says of the replica, and nothing more.

An official master does not name its settings, so nothing is compared with it.
"""

from collections.abc import Mapping

import msgspec

from rocketmq_formats.remoting.ha_info import ExchangeHAInfoHeader, GroupName, decode_settings, other_group
from rocketmq_sidecar.domain.replication.truncate import TruncationError


class OtherFileSizeError(TruncationError):
    """The master's files have another size than this replica's."""


class OtherModeError(TruncationError):
    """One of the two replicas has controllers, the other has none."""


class OtherGroupError(TruncationError):
    """The master is one of another group."""


class GroupSettings(msgspec.Struct, frozen=True):
    """This replica's."""

    values: Mapping[str, str]
    """Key -> value of all of them."""

    @property
    def controllers(self) -> bool:
        return self.values["enableControllerMode"] == "true"


def check_group(ours: GroupName, master: ExchangeHAInfoHeader) -> None:
    """An address that was another group's before, or a mistake in the configuration, must not mix two logs.

    Raises:
        OtherGroupError: this replica must not follow.
    """
    foreign = other_group(ours, master)
    if foreign is not None:
        raise OtherGroupError(f"the master at this address cannot be followed: {foreign}")


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
    size, our_size = master.mapped_file_size_commit_log, ours.values["mappedFileSizeCommitLog"]
    if size is not None and str(size) != our_size:
        raise OtherFileSizeError(
            f"mappedFileSizeCommitLog is {our_size} here and {size} at the master: a copy could not be read. "
            "Set it to the same value on all replicas of a group, and begin the replica that differs with an empty "
            "store"
        )
    theirs = decode_settings(master.group_settings)
    return tuple(
        f"{key} is {value!r} here and {theirs[key]!r} at the master"
        for key, value in sorted(ours.values.items())
        if theirs.get(key, value) != value
    )
