"""An Apache broker's log for the verification (`served_log.ServedLog`), read from its files: Java does not report its
confirm offset, and its answers about the rest are older than the files. Built by `app`."""

import asyncio
from pathlib import Path

from msgspec.structs import astuple

from rocketmq_api.log_view import LogView, runs_of
from rocketmq_commitlog.errors import NotALogError
from rocketmq_commitlog.state import LogPaths, read_state
from rocketmq_sidecar.domain.observing.verdict import Role
from rocketmq_sidecar.observer.observer import Observer
from rocketmq_sidecar.ports.served_log import LogCounts, LogUnknownError


class ObservedLog:
    """One per process; used in the event loop only."""

    def __init__(self, observer: Observer) -> None:
        settings = observer.settings
        self.counts = LogCounts()
        self._observer = observer
        self._paths = LogPaths.in_root(settings.root, commit_log=settings.commit_log_path, epochs=settings.epoch_file)
        self._reading = asyncio.Lock()
        """One walk to the log's end at a time."""

    @property
    def path(self) -> Path:
        return self._paths.commit_log

    @property
    def queues_in(self) -> Path:
        return self._observer.settings.root

    async def view(self) -> LogView:
        observer, settings = self._observer, self._observer.settings
        async with self._reading:
            try:
                state = await asyncio.to_thread(read_state, self._paths)
            except NotALogError as error:
                raise LogUnknownError(str(error)) from error
        group = observer.group
        return LogView(
            cluster_name=settings.broker_cluster_name,
            broker_name=settings.name,
            broker_id=observer.broker_id,
            master=observer.standing.role is Role.MASTER,
            master_epoch=0 if group is None else group.master_epoch,
            min_offset=state.min_offset,
            confirm_offset=state.confirm_offset,
            max_offset=state.max_offset,
            segment_size=state.segment_size,
            segments=runs_of(state.segments, state.segment_size),
            epochs=tuple(state.epochs.starts()),
            strict=settings.all_ack_in_sync_state_set,
            short=state.short,
            given_up=tuple(astuple(one) for one in state.given_up),
        )
