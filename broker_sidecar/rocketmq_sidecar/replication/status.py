"""Keeps the bodies of 1007 GET_BROKER_EPOCH_CACHE and 907 GET_BROKER_HA_STATUS up to date for the broker, which answers
these requests. Used by `replication`. Source: rocketmq-all-5.3.3: EpochEntryCache.java, HARuntimeInfo.java.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.ha_info import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_sidecar.replication.follower import Follower
from rocketmq_sidecar.replication.ha_server import HaServer
from rocketmq_sidecar.replication.slave_connection import SlaveConnection
from rocketmq_sidecar.settings import SidecarSettings

INTERVAL: Final = 0.2
"""Seconds between two reports."""
_MASTER_ID: Final = 0


class StatusSource(msgspec.Struct, frozen=True):
    """Where the status is read from."""

    broker_id: int
    epochs: EpochList
    max_offset: int
    server: HaServer | None
    follower: Follower | None


class StatusReporter:
    """Calls `on_status(epochs, ha)` when they changed, at most every `INTERVAL`."""

    def __init__(self, settings: SidecarSettings, on_status: Callable[[bytes, bytes], None]) -> None:
        self._settings = settings
        self._on_status = on_status
        self._last: tuple[bytes, bytes] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next = float("-inf")
        self._read: Callable[[], StatusSource] | None = None
        self._bytes: dict[SlaveConnection, tuple[float, int, int]] = {}

    def changed(self, read: Callable[[], StatusSource]) -> None:
        """Something may have changed; `read` is called when it is time to report."""
        self._read = read
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._next), self._report)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _report(self) -> None:
        assert self._read is not None
        loop = asyncio.get_running_loop()
        self._timer = None
        self._next = loop.time() + INTERVAL
        view = self._read()
        status = (self._epochs(view), encode_body(self._ha(view, loop.time())))
        if status != self._last:
            self._last = status
            self._on_status(*status)

    def _epochs(self, view: StatusSource) -> bytes:
        master = view.server is not None and view.server.mastership is not None
        entries = [
            {"endOffset": entry.end_offset, "epoch": entry.epoch, "startOffset": entry.start_offset}
            for entry in view.epochs.entries
        ]
        return encode_body(
            {
                "brokerId": _MASTER_ID if master else view.broker_id,
                "brokerName": self._settings.name,
                "clusterName": self._settings.broker_cluster_name,
                "epochList": entries,
                "maxOffset": view.max_offset,
            }
        )

    def _ha(self, view: StatusSource, now: float) -> HARuntimeInfo:
        master = None if view.server is None else view.server.mastership
        if master is not None:
            assert view.server is not None
            return HARuntimeInfo(
                master=True,
                master_commit_log_max_offset=master.max_offset,
                in_sync_slave_nums=master.in_sync - 1,
                ha_connection_info=self._slaves(view.server, now),
            )
        connection = None if view.follower is None else view.follower.connection
        if view.follower is None or connection is None:
            return HARuntimeInfo(ha_client_runtime_info=HAClientRuntimeInfo(max_offset=view.max_offset))
        wall = time.time()
        return HARuntimeInfo(
            ha_client_runtime_info=HAClientRuntimeInfo(
                master_addr=view.follower.ha_address,
                max_offset=view.max_offset,
                last_read_timestamp=int((wall - (now - connection.last_read)) * 1000),
                last_write_timestamp=int((wall - (now - connection.last_write)) * 1000),
            )
        )

    def _slaves(self, server: HaServer, now: float) -> Sequence[HAConnectionRuntimeInfo]:
        master = server.mastership
        assert master is not None
        before, self._bytes = self._bytes, {}
        slaves = []
        for connection in server.connections:
            session = connection.session
            if session.slave is None:
                continue
            since, sent, rate = before.get(connection, (now, connection.sent, 0))
            if now - since >= 1.0:
                rate = int((connection.sent - sent) / (now - since))
                since, sent = now, connection.sent
            self._bytes[connection] = (since, sent, rate)
            slaves.append(
                HAConnectionRuntimeInfo(
                    addr=connection.peer,
                    slave_ack_offset=max(0, session.ack),
                    diff=master.max_offset - max(0, session.ack),
                    in_sync=session.slave.broker_id in master.sync_set.members,
                    transferred_byte_in_second=rate,
                    transfer_from_where=session.started_at,
                )
            )
        return slaves
