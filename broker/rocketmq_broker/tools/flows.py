"""VIEW_BROKER_STATS_DATA (315): statistics by name and key, for statsAll and dashboards; and the timer behind them.

Source: rocketmq-all-5.3.3: AdminBrokerProcessor.java, BrokerStatsManager.java.
"""

import asyncio

from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.domain.flow_stats import SAMPLE_SECONDS, Snapshot
from rocketmq_broker.processor_table import Processor
from rocketmq_broker.traffic import Traffic
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.broker_admin import BrokerStatsData, BrokerStatsItem, ViewBrokerStatsDataRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_runtime.remoting.server import Answer, Peer


class Flows:
    """Samples the statistics and answers from them."""

    def __init__(self, traffic: Traffic, cluster: str) -> None:
        """`cluster`: the key of what the whole broker took and gave."""
        self._traffic = traffic
        self._stats = traffic.flows
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def processors(self) -> dict[int, Processor]:
        return {RequestCode.VIEW_BROKER_STATS_DATA: self._view}

    def start(self) -> None:
        """Begin to sample."""
        self._timer = self._loop.call_later(SAMPLE_SECONDS, self._sample)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _sample(self) -> None:
        self._timer = self._loop.call_later(SAMPLE_SECONDS, self._sample)
        counts = self._traffic.counts
        self._stats.sample_broker(self._cluster, counts.put_messages, counts.got_messages, self._loop.time())
        for number, sampler in enumerate(self._stats.samplers(self._loop.time())):
            self._loop.call_later(number * 0.01, sampler)

    def _view(self, request: RemotingCommand, _peer: Peer) -> Answer:
        header = decode_header(ViewBrokerStatsDataRequestHeader, request.ext_fields or {})
        stats = self._stats.stats(header.stats_name, header.stats_key)
        if stats is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)
        body = BrokerStatsData(
            stats_minute=_item(stats.minute), stats_hour=_item(stats.hour), stats_day=_item(stats.day)
        )
        return response(request, ResponseCode.SUCCESS, None, None, encode_body(body))


def _item(snapshot: Snapshot) -> BrokerStatsItem:
    return BrokerStatsItem(sum=snapshot.sum, tps=snapshot.tps, avgpt=snapshot.avgpt)
