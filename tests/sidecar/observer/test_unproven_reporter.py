"""Every controller of the broker's group gets repeated reports whether the Java broker's log may lack what was
acknowledged."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.controller import LogDoubtRequestHeader
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_runtime.remoting.client import ConnectError
from rocketmq_sidecar.observer.controllers import OtherControllersError
from rocketmq_sidecar.observer.unproven_reporter import INTERVAL, INTERVAL_UNPROVEN, UnprovenReporter

pytestmark = pytest.mark.looptime


class Controllers:
    """What each of them heard, and how `ask` ends for some: without an answer, or because they are too old."""

    def __init__(self, *addresses: str) -> None:
        self.heard: dict[str, list[bool]] = {address: [] for address in addresses}
        self.silent: dict[str, Exception] = {}
        self.old: set[str] = set()
        self.report: tuple[int, str | None] | None = None

    async def ask(self, address: str, asked: RemotingCommand) -> RemotingCommand:
        assert asked.code == RequestCode.CONTROLLER_LOG_DOUBT
        if address in self.silent:
            raise self.silent[address]
        header = decode_header(LogDoubtRequestHeader, asked.ext_fields or {})
        assert (header.cluster_name, header.broker_name, header.broker_id) == ("C", "broker-a", 1)
        self.heard[address].append(header.unproven)
        return response(asked, ResponseCode.REQUEST_CODE_NOT_SUPPORTED if address in self.old else ResponseCode.SUCCESS)

    @asynccontextmanager
    async def reported_to(self) -> AsyncIterator[None]:
        reporter = UnprovenReporter(
            list(self.heard), cluster_name="C", broker_name="broker-a", ask=self.ask, report=lambda: self.report
        )
        reporter.start()
        try:
            yield
        finally:
            await reporter.close()


async def test_each_controller_gets_reports_until_all_know_it() -> None:
    controllers = Controllers("a", "away")
    controllers.silent["away"] = ConnectError("away")
    async with controllers.reported_to():
        await asyncio.sleep(1)
        assert controllers.heard == {"a": [], "away": []}, "nothing is known yet"
        controllers.report = 1, "lost power"
        await asyncio.sleep(1)
        assert controllers.heard == {"a": [True] * 4, "away": []}
        controllers.silent.clear()
        await asyncio.sleep(INTERVAL_UNPROVEN)
        assert controllers.heard["away"] == [True]
        controllers.report = 1, None
        await asyncio.sleep(2 * INTERVAL)
        for heard in controllers.heard.values():
            assert heard[-2:] == [False, False]


async def test_a_controller_without_support_is_named_once() -> None:
    controllers = Controllers("a")
    controllers.old = {"a"}
    controllers.report = 1, "lost power"
    with capture_logs() as logs:
        async with controllers.reported_to():
            await asyncio.sleep(3 * INTERVAL)
    assert controllers.heard["a"] == [True] * 3
    assert [line["controller"] for line in logs if "does not support" in line["event"]] == ["a"]


async def test_a_controller_of_another_group_is_asked_again_until_it_is_ours() -> None:
    """`ask` compares groups each time: another process may have the address by now."""
    controllers = Controllers("a")
    controllers.report = 1, "lost power"
    controllers.silent["a"] = OtherControllersError("a is of the controllers' group theirs, not of ours")
    async with controllers.reported_to():
        await asyncio.sleep(INTERVAL)
        controllers.silent.clear()
        await asyncio.sleep(INTERVAL_UNPROVEN)
        assert controllers.heard["a"]
