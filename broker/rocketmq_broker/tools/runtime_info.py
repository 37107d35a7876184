"""What tools show of this broker: GET_BROKER_RUNTIME_INFO (28) for clusterList and brokerStatus, its configuration
(26), of which brokerPermission can be changed while it runs (25).

Every key of Java's is there, because tools and exporters read them without a look whether they are. Those that Java
fills from parts we do not have (thread pools, timer wheel, buffers) say that nothing is in there.
Source: rocketmq-all-5.3.3: AdminBrokerProcessor.java, StoreStatsService.java.
"""

import os
from pathlib import Path
from typing import Final

import structlog

from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.domain.permission import KEY, BrokerPermission
from rocketmq_broker.domain.role import ReplicaRole, Role
from rocketmq_broker.domain.tables.topics import TopicTable
from rocketmq_broker.host import now_ms
from rocketmq_broker.processor_table import Processor
from rocketmq_broker.sending.waiting_sends import WaitingSends
from rocketmq_broker.settings import BrokerSettings
from rocketmq_broker.tables.consumer_tables import DelayOffsets
from rocketmq_broker.tables.table_file import TableFile, answer_when_durable, no_barrier
from rocketmq_broker.tools.send_times import distribution, percentile
from rocketmq_broker.tools.stats import TrafficStats
from rocketmq_broker.traffic import Traffic
from rocketmq_formats import properties
from rocketmq_formats.codes import VERSION_5_3_3, RequestCode, ResponseCode
from rocketmq_formats.errors import BodyError
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.broker_admin import GetBrokerConfigResponseHeader
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.nameserver import KVTable
from rocketmq_formats.store.message import Record, read_record
from rocketmq_formats.topics import SCHEDULE_TOPIC, DataVersion
from rocketmq_runtime import background
from rocketmq_runtime.config.settings import to_text_values
from rocketmq_runtime.files.filesystem import used_ratio
from rocketmq_runtime.remoting.server import Answer, Peer
from rocketmq_store.message_store import MessageStore

log = structlog.get_logger(__name__)

_NOTHING_HERE: Final = {
    "EndTransactionQueueSize": "0",
    "EndTransactionThreadPoolQueueCapacity": "0",
    "ackThreadPoolQueueCapacity": "0",
    "dispatchMaxBuffer": "0",
    "litePullThreadPoolQueueCapacity": "0",
    "litePullThreadPoolQueueHeadWaitTimeMills": "0",
    "litePullThreadPoolQueueSize": "0",
    "pageCacheLockTimeMills": "0",
    "queryThreadPoolQueueCapacity": "0",
    "remainTransientStoreBufferNumbs": "2147483647",
    "sendThreadPoolQueueHeadWaitTimeMills": "0",
    "pullThreadPoolQueueSize": "0",
    "pullThreadPoolQueueHeadWaitTimeMills": "0",
    "queryThreadPoolQueueSize": "0",
    "queryThreadPoolQueueHeadWaitTimeMills": "0",
    "ackThreadPoolQueueSize": "0",
    "ackThreadPoolQueueHeadWaitTimeMills": "0",
    "timerReadBehind": "0",
    "timerOffsetBehind": "0",
    "timerCongestNum": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
}
"""No queues of thread pools, no timer wheel; without a pool of buffers Java has no bound of them either."""


class RuntimeInfo:
    """Answers from counters and settings."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        role: ReplicaRole,
        permission: BrokerPermission,
        permission_file: TableFile,
        topics: TopicTable,
        store: MessageStore,
        waiting: WaitingSends,
        traffic: Traffic,
        stats: TrafficStats,
        delays: DelayOffsets,
    ) -> None:
        self._settings = settings
        self._role = role
        self._permission = permission
        self._permission_file = permission_file
        self._topics = topics
        self._store = store
        self._waiting = waiting
        self._traffic = traffic
        self._stats = stats
        self._delays = delays
        self._version = DataVersion(timestamp=stats.boot_timestamp)

    @property
    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime_info,
            RequestCode.GET_BROKER_CONFIG: self._config,
            RequestCode.UPDATE_BROKER_CONFIG: self._update_config,
        }

    # 28

    def _runtime_info(self, request: RemotingCommand, _peer: Peer) -> Answer:
        return response(request, ResponseCode.SUCCESS, None, None, encode_body(KVTable(table=self.table())))

    def table(self) -> dict[str, str]:
        """Every key with its value."""
        settings, store = self._settings, self._store
        seconds = max(now_ms() - self._stats.boot_timestamp, 0) // 1000
        hours, days = seconds // 3600 % 24, seconds // 86_400
        ratio = _used(settings.commit_log_path)
        return _NOTHING_HERE | {
            "brokerVersion": str(VERSION_5_3_3),
            "brokerVersionDesc": "V5_3_3",
            "brokerActive": "true" if self._role.role is Role.MASTER else "false",
            "bootTimestamp": str(self._stats.boot_timestamp),
            "runtime": f"[ {days} days, {hours} hours, {seconds // 60 % 60} minutes, {seconds % 60} seconds ]",
            "startAcceptSendRequestTimeStamp": str(settings.start_accept_send_request_time_stamp),
            "sendThreadPoolQueueSize": str(len(self._waiting)),
            "sendThreadPoolQueueCapacity": str(settings.send_thread_pool_queue_capacity),
            "pullThreadPoolQueueCapacity": str(settings.pull_thread_pool_queue_capacity),
            "commitLogMinOffset": str(store.min_offset),
            "commitLogMaxOffset": str(store.max_offset),
            "dispatchBehindBytes": str(max(store.max_offset - store.dispatched_offset, 0)),
            "remainHowManyDataToFlush": f"{max(store.max_offset - store.flushed_offset, 0)} B",
            "earliestMessageTimeStamp": str(self._earliest()),
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{settings.commit_log_path}": ratio,
            "consumeQueueDiskRatio": _used(settings.root),
            "commitLogDirCapacity": _capacity(settings.commit_log_path),
            **self._traffic_table(),
            **self._delay_table(),
        }

    def _traffic_table(self) -> dict[str, str]:
        traffic, stats = self._traffic, self._stats
        counts, sends = traffic.counts, stats.sends
        average = counts.put_bytes / counts.put_messages if counts.put_messages else 0.0
        transferred = stats.rates(lambda sample: sample.got)
        table = {
            "putTps": stats.rates(lambda sample: sample.put),
            "getTransferredTps": transferred,
            "getTransferedTps": transferred,  # as the official exporter spells it
            "getFoundTps": stats.rates(lambda sample: sample.found),
            "getMissTps": stats.rates(lambda sample: sample.missed),
            "getTotalTps": stats.rates(lambda sample: sample.found + sample.missed),
            "putMessageTimesTotal": str(counts.put_messages),
            "putMessageFailedTimes": str(counts.sends_refused + counts.sends_timed_out),
            "putMessageSizeTotal": str(counts.put_bytes),
            "putMessageAverageSize": f"{average:.1f}",
            "putMessageDistributeTime": distribution(sends),
            "putMessageEntireTimeMax": str(int(traffic.slowest_send * 1000)),
            "putLatency99": percentile(sends, 0.99, traffic.slowest_send),
            "putLatency999": percentile(sends, 0.999, traffic.slowest_send),
            "getMessageEntireTimeMax": str(int(traffic.slowest_read * 1000)),
        }
        for name, totals in (
            ("YesterdayMorning", stats.yesterday_morning),
            ("TodayMorning", stats.today_morning),
            ("TodayNow", stats.now),
        ):
            table[f"msgPutTotal{name}"] = str(totals.put)
            table[f"msgGetTotal{name}"] = str(totals.got)
        return table

    def _delay_table(self) -> dict[str, str]:
        """Of each level: what was delivered, and what there is."""
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{self._store.queue_bounds(SCHEDULE_TOPIC, level - 1)[1]}"
            for level, offset in self._delays.table.items()
        }

    def _earliest(self) -> int:
        """Store time of the log's first message in ms, -1 without one."""
        view = self._store.record_at(self._store.min_offset)
        record = None if view is None else read_record(view, 0, len(view), check_crc=False)
        return record.store_timestamp if isinstance(record, Record) else -1

    # 25, 26

    def _config(self, request: RemotingCommand, _peer: Peer) -> Answer:
        values = to_text_values(self._settings)
        outward = self._role.outward_id
        if outward is not None:
            values["brokerId"] = str(outward)
            values["brokerRole"] = "SYNC_MASTER" if self._role.role is Role.MASTER else "SLAVE"
        values["brokerName"] = self._settings.name
        values[KEY] = str(self._permission.value)
        header = GetBrokerConfigResponseHeader(version=encode_body(self._version).decode())
        return response(request, ResponseCode.SUCCESS, None, header, properties.dump(values))

    def _update_config(self, request: RemotingCommand, peer: Peer) -> Answer:
        try:
            values = properties.parse(request.body)
        except BodyError as error:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"the body is not a list of keys: {error}") from error
        if values.keys() == {KEY}:
            return self._change_permission(request, peer, values[KEY].strip())
        keys = ", ".join(sorted(values))[:200]
        log.warning("change of the configuration refused: set it in the file", keys=keys, by=peer.address)
        remark = f"{keys or 'nothing'}: this broker's configuration is its file's; change it there and restart"
        raise RequestRefusedError(ResponseCode.NO_PERMISSION, remark)

    def _change_permission(self, request: RemotingCommand, peer: Peer, text: str) -> Answer:
        try:
            changed = self._permission.change(text)
        except ValueError as error:
            raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, str(error)) from error
        if changed:
            log.warning("brokerPermission changed", value=self._permission.value, by=peer.address)
            if self._role.role is Role.MASTER:
                self._topics.next_version(self._role.epoch, now_ms())  # name servers take no table of the same version
        return background.awaited(answer_when_durable(request, self._permission_file, no_barrier()), "configuration")


def _used(path: Path) -> str:
    """-1 if unknown, as in Java."""
    try:
        ratio = used_ratio(path)
    except OSError:
        ratio = -1.0
    return f"{ratio:.2f}"


def _capacity(path: Path) -> str:
    try:
        disk = os.statvfs(path)
    except OSError:
        return "Total : unknown, Free : unknown."
    return f"Total : {_human(disk.f_blocks * disk.f_frsize)}, Free : {_human(disk.f_bavail * disk.f_frsize)}."


def _human(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
