"""The native replica's log for the verification (`served_log.ServedLog`): present offsets and epochs from replication,
the list of files from the folder. Built by `app`."""

import asyncio
from pathlib import Path

from msgspec.structs import astuple, replace

from rocketmq_api.log_view import LogView, runs_of
from rocketmq_commitlog.errors import SmallFileError
from rocketmq_commitlog.folder import LogFolder
from rocketmq_formats.store.given_up import FILE_NAME, GivenUpError
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_sidecar.control.agent import Agent
from rocketmq_sidecar.domain.control.role import BrokerState
from rocketmq_sidecar.ports.served_log import LogCounts, LogUnknownError


class NativeLog:
    """One per process; used in the event loop only."""

    def __init__(self, agent: Agent) -> None:
        self.counts = LogCounts()
        self._agent = agent

    @property
    def path(self) -> Path:
        return self._agent.settings.commit_log_path

    @property
    def queues_in(self) -> Path:
        return self._agent.settings.root

    async def view(self) -> LogView:
        settings, machine, replication = self._agent.settings, self._agent.machine, self._agent.replication
        if not replication.file_size:
            raise LogUnknownError("the broker has not opened the log yet: try again")
        view = LogView(
            cluster_name=settings.broker_cluster_name,
            broker_name=settings.name,
            broker_id=None if machine is None else machine.session.broker_id,
            master=machine is not None and machine.role.broker is BrokerState.MASTER,
            master_epoch=0 if machine is None else machine.session.group.master_epoch,
            min_offset=replication.min_offset,
            confirm_offset=replication.noted_offset,
            max_offset=replication.max_offset,
            segment_size=replication.file_size,
            epochs=tuple((entry.epoch, entry.start_offset) for entry in replication.epochs),
            strict=settings.acknowledges_what_all_have,
            given_up=self._given_up(),
        )
        return await asyncio.to_thread(_with_files, view, self.path)

    def _given_up(self) -> tuple[tuple[int, int, int, int], ...]:
        try:
            return tuple(astuple(one) for one in self._agent.replication.given_up)
        except (GivenUpError, StorageError) as error:
            path = self._agent.settings.root / FILE_NAME
            raise SmallFileError(
                path, f"damaged ({error}): read what it says of lost messages, then delete it"
            ) from error


def _with_files(view: LogView, path: Path) -> LogView:
    """`view` with the list of files. It is read a moment later: some files of `view` may have expired."""
    log = LogFolder(path, segment_size=view.segment_size)
    starts = log.segments
    begin = max(view.min_offset, starts[0]) if starts else view.min_offset
    return replace(view, min_offset=begin, segments=runs_of(starts, view.segment_size), short=log.short)
