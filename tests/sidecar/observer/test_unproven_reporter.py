"""Every controller gets repeated reports whether the Java broker's log may lack what was acknowledged."""

import asyncio

import pytest
from structlog.testing import capture_logs

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.controller import LogDoubtRequestHeader
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_runtime.remoting.server import Peer, RemotingServer
from rocketmq_sidecar.observer import unproven_reporter
from rocketmq_sidecar.observer.unproven_reporter import UnprovenReporter


class Controller:
    """The reports that a controller received; `knows` False: it is of an earlier release."""

    def __init__(self) -> None:
        self.knows = True
        self.heard: asyncio.Queue[bool] = asyncio.Queue()
        self.server = RemotingServer(self, host="127.0.0.1", port=0)

    def on_request(self, asked: RemotingCommand, peer: Peer) -> RemotingCommand:
        assert asked.code == RequestCode.CONTROLLER_LOG_DOUBT
        header = decode_header(LogDoubtRequestHeader, asked.ext_fields or {})
        assert (header.cluster_name, header.broker_name, header.broker_id) == ("C", "broker-a", 1)
        self.heard.put_nowait(header.unproven)
        return response(asked, ResponseCode.SUCCESS if self.knows else ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

    def on_close(self, peer: Peer) -> None:
        pass

    async def hears(self, *, unproven: bool) -> None:
        """Wait for that report."""
        async with asyncio.timeout(20):
            while await self.heard.get() is not unproven:
                pass


async def test_each_controller_gets_reports_until_all_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unproven_reporter, "INTERVAL_UNPROVEN", 0.01)
    monkeypatch.setattr(unproven_reporter, "INTERVAL", 0.01)
    controllers = [Controller(), Controller()]
    report: tuple[int, str | None] | None = None
    for controller in controllers:
        await controller.server.start()
    away = controllers.pop()
    port = away.server.port
    await away.server.stop()
    addresses = [f"127.0.0.1:{port}", *(f"127.0.0.1:{one.server.port}" for one in controllers)]
    reporter = UnprovenReporter(addresses, cluster_name="C", broker_name="broker-a", report=lambda: report)
    reporter.start()
    try:
        await asyncio.sleep(0.05)
        assert controllers[0].heard.empty()
        report = 1, "lost power"
        await controllers[0].hears(unproven=True)
        back = Controller()
        back.server = RemotingServer(back, host="127.0.0.1", port=port)
        controllers.append(back)
        await back.server.start()
        await back.hears(unproven=True)
        report = 1, None
        for controller in controllers:
            await controller.hears(unproven=False)
    finally:
        await reporter.close()
        for controller in controllers:
            await controller.server.stop()


async def test_a_controller_without_support_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unproven_reporter, "INTERVAL", 0.01)
    controller = Controller()
    controller.knows = False
    await controller.server.start()
    address = f"127.0.0.1:{controller.server.port}"
    reporter = UnprovenReporter([address], cluster_name="C", broker_name="broker-a", report=lambda: (1, "lost power"))
    try:
        with capture_logs() as logs:
            reporter.start()
            for _ in range(3):
                await controller.hears(unproven=True)
        assert [line["controller"] for line in logs if "does not support" in line["event"]] == [address]
    finally:
        await reporter.close()
        await controller.server.stop()
