"""Settings that differ from the master's: which keep a slave away, which are only reported."""

import msgspec
import pytest

from rocketmq_formats.remoting.ha_info import ExchangeHAInfoHeader
from rocketmq_sidecar.domain.replication.group_settings import (
    GroupSettings,
    OtherFileSizeError,
    OtherModeError,
    differences,
)

OURS = GroupSettings(1 << 20, "1s 5s", "strict", 1000)


def master(
    size: int | None = 1 << 20,
    levels: str | None = "1s 5s",
    durability: str | None = "strict",
    largest: int | None = 1000,
) -> ExchangeHAInfoHeader:
    return ExchangeHAInfoHeader(
        mapped_file_size_commit_log=size,
        message_delay_level=levels,
        durability=durability,
        max_message_size=largest,
        master_ha_address="a:1",
    )


def test_equal_settings() -> None:
    assert differences(OURS, master()) == ()


def test_an_official_master_names_none() -> None:
    assert differences(OURS, master(None, None, None, None)) == ()


def test_another_file_size_is_refused_with_both_values() -> None:
    with pytest.raises(OtherFileSizeError, match=r"mappedFileSizeCommitLog is 1048576 here and 2097152 at the master"):
        differences(OURS, master(1 << 21))


def test_other_differences_are_reported_with_both_values() -> None:
    assert differences(OURS, master(levels="1s", durability="relaxed", largest=500)) == (
        "messageDelayLevel is '1s 5s' here and '1s' at the master",
        "durability is 'strict' here and 'relaxed' at the master",
        "maxMessageSize is 1000 here and 500 at the master",
    )


def test_a_slave_and_its_master_both_have_controllers_or_neither() -> None:
    alone = msgspec.structs.replace(OURS, controllers=False)
    their = msgspec.structs.replace(master(), enable_controller_mode=False)
    assert differences(alone, their) == ()
    with pytest.raises(OtherModeError, match="enableControllerMode is true here and false at the master"):
        differences(OURS, their)
    for other in (master(), master(None, None, None, None)):
        with pytest.raises(OtherModeError, match="enableControllerMode is false here and true at the master"):
            differences(alone, other)
