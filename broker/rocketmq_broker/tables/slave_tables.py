"""The tables that slaves, ours and Java's, copy from their master beside topics (21) and groups (201): consumer offsets
(43), delay offsets (45), message request modes (402), and the timer's (60, 61), which are always empty here. New
masters ask for newer consumer offsets (`reverse_sync.py`), and for what escaped (`escaped_sync.py`).

Source: rocketmq-all-5.3.3: AdminBrokerProcessor.java, SlaveSynchronize.java.
"""

from collections.abc import Awaitable, Callable

from rocketmq_broker.host import now_ms
from rocketmq_broker.processor_table import Processor
from rocketmq_broker.slow_lane import SlowLane
from rocketmq_broker.tables.consumer_tables import ConsumerTables
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.broker_admin import MessageRequestModeWrapper, TimerCheckpoint, TimerMetricsWrapper
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.store.config_files import ConsumerOffsetsFile
from rocketmq_formats.table_copies import EscapedRequestHeader, NewerOffsetsRequestHeader
from rocketmq_runtime import background
from rocketmq_runtime.remoting.server import Answer, Peer
from rocketmq_runtime.remoting.slow_lane import Pace, in_steps


class SlaveTables:
    def __init__(
        self, tables: ConsumerTables, lane: SlowLane, before_next_master: Callable[[int], Awaitable[None]]
    ) -> None:
        """`before_next_master`: the master elected for an epoch asks what escaped; returns, soon, when it is known."""
        self._tables = tables
        self._lane = lane
        self._before_next_master = before_next_master

    @property
    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self._delays,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: _modes,
            RequestCode.GET_TIMER_CHECK_POINT: _timer_checkpoint,
            RequestCode.GET_TIMER_METRICS: _timer_metrics,
        }

    def _offsets(self, request: RemotingCommand, peer: Peer) -> Answer:
        held = decode_header(NewerOffsetsRequestHeader, request.ext_fields or {}).version
        version = self._tables.offsets_version()
        if version <= held:
            acting = self._tables.offsets.acting.commits
            return _body(request, encode_body(ConsumerOffsetsFile(data_version=version, acting=acting)))

        async def make(pace: Pace) -> RemotingCommand:
            return _body(request, await in_steps(self._tables.encode_offsets(), pace))

        return self._lane.answer(request, peer, make)

    def _delays(self, request: RemotingCommand, _peer: Peer) -> Answer:
        epoch = decode_header(EscapedRequestHeader, request.ext_fields or {}).epoch
        if epoch == 0:
            return _body(request, self._tables.encode_delays())
        return background.awaited(self._delays_for(request, epoch), "what escaped")

    async def _delays_for(self, request: RemotingCommand, epoch: int) -> RemotingCommand:
        await self._before_next_master(epoch)
        return _body(request, self._tables.encode_delays())


def _modes(request: RemotingCommand, _peer: Peer) -> Answer:
    return _body(request, encode_body(MessageRequestModeWrapper()))


def _timer_checkpoint(request: RemotingCommand, _peer: Peer) -> Answer:
    """Nothing waits, so everything until now is read."""
    return _body(request, TimerCheckpoint(last_read_time_ms=now_ms() // 1000 * 1000).encode())


def _timer_metrics(request: RemotingCommand, _peer: Peer) -> Answer:
    return _body(request, encode_body(TimerMetricsWrapper()))


def _body(request: RemotingCommand, body: bytes) -> RemotingCommand:
    return response(request, ResponseCode.SUCCESS, None, None, body)
