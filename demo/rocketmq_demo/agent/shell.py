"""Runs one agent: does what its machine asks for, with real sockets and files, and serves its port."""

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path

import structlog

from rocketmq_demo.agent.actions import (
    Action,
    Actions,
    Ask,
    ForgetApplied,
    Heartbeat,
    Note,
    Report,
    SaveApplied,
    SaveIdentity,
)
from rocketmq_demo.agent.files import IdentityFiles
from rocketmq_demo.agent.machine import AgentMachine
from rocketmq_demo.agent.settings import AgentSettings
from rocketmq_demo.agent.wire import AgentCode, ReportRequestHeader, ReportResponseHeader
from rocketmq_formats.errors import FormatError
from rocketmq_formats.remoting.bodies import decode_body
from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, request, response
from rocketmq_formats.remoting.controller import NotifyBrokerRoleChangedRequestHeader, SyncStateSet
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_runtime import server
from rocketmq_runtime.client import RemotingClient, RemotingError, parse_address

log = structlog.get_logger(__name__)

TICK = 0.05
ASK_TIMEOUT = 3.0
"""As Java's broker. A call that times out closes the connection, and with it this broker's heartbeats over it."""
REPORT_TIMEOUT = 1.0


class Agent:
    """One per process; implements `rocketmq_runtime.server.Handler`."""

    def __init__(self, settings: AgentSettings, folder: Path) -> None:
        """Read the identity files; nothing is opened yet. Needs a running event loop.

        Raises:
            StorageError, IdentityError: the identity files cannot be read or are not ours.
        """
        self._loop = asyncio.get_running_loop()
        self._files = IdentityFiles(folder)
        identity, applied = self._files.load(settings.cluster_name, settings.broker_name)
        self.machine = AgentMachine(
            settings,
            identity=identity,
            applied=applied,
            check_code=f"{settings.address};{time.time_ns() // 1_000_000}",
            now=self._loop.time(),
        )
        host, port = parse_address(settings.address)
        self._server = server.RemotingServer(self, host=host, port=port)
        self._client = RemotingClient()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._failure: BaseException | None = None
        self._beating: set[str] = set()
        self._slaves: dict[int, int] = {}
        """Broker id by the id of the connection that it reports over."""

    def stop(self) -> None:
        """Let `run` return."""
        self._stopping.set()

    async def run(self) -> None:
        """Serve until `stop`.

        Raises:
            OSError: the port cannot be bound.
            StorageError: an identity could not be written; it must not be used then.
        """
        await self._server.start()
        log.info("agent started: it holds no log", address=self.machine.settings.address)
        self._spawn(self._tick())
        try:
            await self._stopping.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await self._server.stop()
            await self._client.close()
        if self._failure is not None:
            raise self._failure

    # rocketmq_runtime.server.Handler

    def on_request(self, request: RemotingCommand, peer: server.Peer) -> server.Answer:
        """Answer a controller, a slave or a prober."""
        now = self._loop.time()
        try:
            match request.code:
                case RequestCode.NOTIFY_BROKER_ROLE_CHANGED:
                    notice = decode_header(NotifyBrokerRoleChangedRequestHeader, request.ext_fields or {})
                    self._do(self.machine.on_notice(notice, decode_body(SyncStateSet, request.body), now))
                    return response(request, ResponseCode.SUCCESS)
                case AgentCode.PROBE:
                    code, probed = self.machine.on_probe(now)
                    return response(request, code, None, probed)
                case AgentCode.REPORT:
                    report = decode_header(ReportRequestHeader, request.ext_fields or {})
                    code, reported, actions = self.machine.on_report(report, now)
                    self._slaves[peer.id] = report.broker_id
                    self._do(actions)
                    return response(request, code, None, reported)
                case _:
                    remark = "this is the demo's light agent: it has no log"
                    return response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        except FormatError as error:
            return response(request, error.response_code, str(error))

    def on_close(self, peer: server.Peer) -> None:
        """A slave, maybe, is gone."""
        broker_id = self._slaves.pop(peer.id, None)
        if broker_id is not None and broker_id not in self._slaves.values():
            self._do(self.machine.on_slave_closed(broker_id, self._loop.time()))

    # Doing what the machine asks for

    async def _tick(self) -> None:
        while True:
            self._do(self.machine.on_tick(self._loop.time()))
            await asyncio.sleep(TICK)

    def _do(self, actions: Actions) -> None:
        for action in actions:
            self._do_one(action)

    def _do_one(self, action: Action) -> None:
        match action:
            case Ask():
                self._spawn(self._ask(action))
            case Report():
                self._spawn(self._report(action))
            case Heartbeat():
                for address in action.addresses:
                    if address not in self._beating:  # one that hangs must not pile up
                        self._spawn(self._beat(address, action))
            case SaveApplied(applied):
                self._files.save_applied(applied)
                log.info("identity applied for", broker_id=applied.identity.broker_id)
                self._do(self.machine.on_stored(action, self._loop.time()))
            case SaveIdentity(identity):
                self._files.save_identity(identity)
                log.info("identity kept", broker_id=identity.broker_id)
                self._do(self.machine.on_stored(action, self._loop.time()))
            case ForgetApplied():
                self._files.forget_applied()
                self._do(self.machine.on_stored(action, self._loop.time()))
            case Note():
                log.info(action.text, **action.values)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A file that cannot be written, or a bug: an agent that goes on could be anybody.
            self._failure = self._failure or error
            self._stopping.set()

    async def _ask(self, ask: Ask) -> None:
        answer: RemotingCommand | None = None
        try:
            answer = await self._client.call(ask.address, request(ask.code, ask.header, ask.body), timeout=ASK_TIMEOUT)
        except RemotingError as error:
            log.debug("no answer", code=ask.code.name, reason=str(error))
        self._do(self.machine.on_answer(ask, answer, self._loop.time()))

    async def _report(self, report: Report) -> None:
        known: ReportResponseHeader | None = None
        try:
            answer = await self._client.call(
                report.address, request(AgentCode.REPORT, report.header), timeout=REPORT_TIMEOUT
            )
            if answer.code == ResponseCode.SUCCESS:
                known = decode_header(ReportResponseHeader, answer.ext_fields or {})
        except (RemotingError, FormatError) as error:
            log.debug("report not taken", master=report.address, reason=str(error))
        self._do(self.machine.on_report_answer(report, known, self._loop.time()))

    async def _beat(self, address: str, heartbeat: Heartbeat) -> None:
        self._beating.add(address)
        try:
            beat = request(RequestCode.BROKER_HEARTBEAT, heartbeat.header, oneway=True)
            await self._client.send_oneway(address, beat)
        except RemotingError as error:
            log.debug("heartbeat not sent", controller=address, reason=str(error))
        finally:
            self._beating.discard(address)
