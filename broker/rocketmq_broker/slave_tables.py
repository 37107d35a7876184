"""The tables that slaves, ours and Java's, copy from their master beside topics (21) and groups (201): consumer offsets
(43), delay offsets (45), message request modes (402), and the timer's (60, 61), which are always empty here.

Source: broker reference, section 7.
"""

from rocketmq_broker.front import Processor
from rocketmq_broker.host import now_ms
from rocketmq_broker.tables import ConsumerTables
from rocketmq_formats.remoting.bodies import encode_body
from rocketmq_formats.remoting.broker_admin import MessageRequestModeWrapper, TimerCheckpoint, TimerMetricsWrapper
from rocketmq_formats.remoting.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_runtime.server import Answer, Peer


class SlaveTables:
    """Answers slaves."""

    def __init__(self, tables: ConsumerTables) -> None:
        self._tables = tables

    @property
    def processors(self) -> dict[int, Processor]:
        """For `Front.register`."""
        return {
            RequestCode.GET_ALL_CONSUMER_OFFSET: lambda request, _peer: _body(request, self._tables.encode_offsets()),
            RequestCode.GET_ALL_DELAY_OFFSET: lambda request, _peer: _body(request, self._tables.encode_delays()),
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: _modes,
            RequestCode.GET_TIMER_CHECK_POINT: _timer_checkpoint,
            RequestCode.GET_TIMER_METRICS: _timer_metrics,
        }


def _modes(request: RemotingCommand, _peer: Peer) -> Answer:
    return _body(request, encode_body(MessageRequestModeWrapper()))


def _timer_checkpoint(request: RemotingCommand, _peer: Peer) -> Answer:
    """Nothing waits, so everything until now is read."""
    return _body(request, TimerCheckpoint(last_read_time_ms=now_ms() // 1000 * 1000).encode())


def _timer_metrics(request: RemotingCommand, _peer: Peer) -> Answer:
    return _body(request, encode_body(TimerMetricsWrapper()))


def _body(request: RemotingCommand, body: bytes) -> RemotingCommand:
    return response(request, ResponseCode.SUCCESS, None, None, body)
