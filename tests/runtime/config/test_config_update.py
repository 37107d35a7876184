"""updateControllerConfig (1009) and updateNamesrvConfig (318)."""

from collections.abc import Mapping

import pytest

from rocketmq_formats.codes import ResponseCode
from rocketmq_runtime.config.config_update import update_config

BLACK = "Can not update config in black list."


def numbers_only(values: Mapping[str, str]) -> str | None:
    return next((f"{key}: not a number" for key, value in values.items() if not value.isdigit()), None)


@pytest.mark.parametrize(
    ("update", "code", "remark", "values"),
    [
        ({}, 0, None, {}),
        ({"period": "7", "unknown": "x"}, 0, None, {"period": "7"}),
        ({"period": "7", "limit": "8"}, 0, None, {"period": "7", "limit": "8"}),
        ({"period": "x", "limit": "8"}, 2005, "period: not a number", {}),
        ({"configBlackList": "", "period": "x"}, 16, BLACK, {}),
        ({"configStorePath": "/"}, 16, BLACK, {}),
        ({"rocketmqHome": "/", "period": "1"}, 16, BLACK, {}),
        ({"secret": "1"}, 16, BLACK, {}),
    ],
)
def test_config_update(update: dict[str, str], code: int, remark: str | None, values: dict[str, str]) -> None:
    """The black list counts for all keys and comes first; unknown keys are left out; one wrong value refuses all."""
    result = update_config(
        update,
        known_keys={"period", "limit", "secret"},
        config_black_list="configBlackList; secret ;",
        validate=numbers_only,
        wrong_value=ResponseCode.CONTROLLER_INVALID_REQUEST,
    )
    assert (result.code, result.remark, result.values) == (ResponseCode(code), remark, values)


def test_differs_from_5_3_3_a_wrong_value_is_refused_by_name() -> None:
    """Java answers success and drops the value."""
    result = update_config(
        {"period": "soon"},
        known_keys={"period"},
        config_black_list="",
        validate=numbers_only,
        wrong_value=ResponseCode.INVALID_PARAMETER,
    )
    assert (result.code, result.remark) == (ResponseCode.INVALID_PARAMETER, "period: not a number")


def test_differs_from_5_3_3_what_only_the_machine_may_set_refuses_the_whole_update() -> None:
    result = update_config(
        {"period": "7", "secretFile": "/x", "unknown": "1"},
        known_keys={"period", "secretFile"},
        config_black_list="",
        machine_only={"secretFile"},
        validate=numbers_only,
        wrong_value=ResponseCode.INVALID_PARAMETER,
    )
    assert (result.code, result.values) == (ResponseCode.NO_PERMISSION, {})
    assert result.remark == "secretFile: only the configuration file can change this, with a restart"
