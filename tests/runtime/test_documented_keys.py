"""docs/operations.md names every configuration key of every process."""

import re
from pathlib import Path

import pytest

from rocketmq_broker.settings import BrokerSettings
from rocketmq_controller.settings import ControllerSettings
from rocketmq_namesrv.settings import NameServerSettings
from rocketmq_runtime.settings import Settings
from rocketmq_sidecar.settings import SidecarSettings

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
WITHOUT_EFFECT = {
    "clientRequestThreadPoolNums",
    "clientRequestThreadPoolQueueCapacity",
    "controllerType",
    "defaultThreadPoolNums",
    "defaultThreadPoolQueueCapacity",
    "productEnvName",
    "unRegisterBrokerQueueCapacity",
}
"""Taken because Java's files carry them, documented as a whole."""


@pytest.mark.parametrize("spec", [BrokerSettings, ControllerSettings, NameServerSettings, SidecarSettings])
def test_every_key_is_documented(spec: type[Settings]) -> None:
    words = set(re.findall(r"\w+", OPERATIONS.read_text()))
    assert set(spec.__struct_encode_fields__) - words - WITHOUT_EFFECT == set()
