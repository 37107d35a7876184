"""A controller's gRPC door for each test, and a client of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from grpc import aio

from rocketmq_api.controller_admin_pb2_grpc import ControllerAdminStub
from tests.controller.grpc_kit import Door, open_door


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    async with open_door(tmp_path) as opened:
        yield opened


@pytest.fixture
async def channel(door: Door) -> AsyncIterator[aio.Channel]:
    async with aio.insecure_channel(door.target) as opened:
        yield opened


@pytest.fixture
def admin(channel: aio.Channel) -> ControllerAdminStub:
    return ControllerAdminStub(channel)
