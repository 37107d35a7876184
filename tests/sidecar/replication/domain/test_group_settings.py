"""Settings that differ from the master's: which keep a slave away, which are only reported."""

import msgspec
import pytest

from rocketmq_formats.remoting.ha_info import ExchangeHAInfoHeader, encode_settings
from rocketmq_sidecar.domain.replication.group_settings import (
    GroupSettings,
    OtherFileSizeError,
    OtherModeError,
    differences,
)

VALUES = {
    "mappedFileSizeCommitLog": "1048576",
    "enableControllerMode": "true",
    "messageDelayLevel": "1s 5s",
    "durability": "strict",
    "lockInStrictMode": "true",
}
OURS = GroupSettings(VALUES)
OFFICIAL = ExchangeHAInfoHeader(master_ha_address="a:1")


def master(size: int = 1 << 20, **values: str) -> ExchangeHAInfoHeader:
    return ExchangeHAInfoHeader(
        mapped_file_size_commit_log=size,
        group_settings=encode_settings({**VALUES, **values}),
        master_ha_address="a:1",
    )


def test_equal_settings() -> None:
    assert differences(OURS, master()) == ()


def test_an_official_master_names_none() -> None:
    assert differences(OURS, OFFICIAL) == ()


def test_another_file_size_is_refused_with_both_values() -> None:
    with pytest.raises(OtherFileSizeError, match=r"mappedFileSizeCommitLog is 1048576 here and 2097152 at the master"):
        differences(OURS, master(1 << 21))


def test_other_differences_are_reported_with_both_values() -> None:
    assert differences(OURS, master(messageDelayLevel="1s", durability="relaxed", lockInStrictMode="false")) == (
        "durability is 'strict' here and 'relaxed' at the master",
        "lockInStrictMode is 'true' here and 'false' at the master",
        "messageDelayLevel is '1s 5s' here and '1s' at the master",
    )


def test_keys_that_only_one_of_the_two_knows_are_not_compared() -> None:
    """Releases differ while a group is updated."""
    assert differences(OURS, master(ofALaterRelease="7")) == ()
    fewer = msgspec.structs.replace(master(), group_settings=encode_settings({"durability": "relaxed"}))
    assert differences(OURS, fewer) == ("durability is 'strict' here and 'relaxed' at the master",)


def test_what_a_master_names_becomes_one_line() -> None:
    (difference,) = differences(OURS, master(durability="strict\nall is well"))
    assert "\n" not in difference


def test_a_slave_and_its_master_both_have_controllers_or_neither() -> None:
    alone = GroupSettings({**VALUES, "enableControllerMode": "false"})
    their = msgspec.structs.replace(master(enableControllerMode="false"), enable_controller_mode=False)
    assert differences(alone, their) == ()
    with pytest.raises(OtherModeError, match="enableControllerMode is true here and false at the master"):
        differences(OURS, their)
    for other in (master(), OFFICIAL):
        with pytest.raises(OtherModeError, match="enableControllerMode is false here and true at the master"):
            differences(alone, other)
