"""The verification's view of a replica's log, without gRPC: the interface between `log_service` and the two kinds of
sidecar.

Implemented by `native_log`, which has the live state of replication, and by `observer.observed_log`, which reads the
files of an Apache broker.
"""

from pathlib import Path
from typing import Protocol

from rocketmq_api.log_view import LogView


class LogUnknownError(Exception):
    """The log is not known yet; the text says why."""


class LogCounts:
    """What was done for the verification since the start, in bytes of the log; for the metrics."""

    def __init__(self) -> None:
        self.digested = self.sent = 0


class ServedLog(Protocol):
    @property
    def counts(self) -> LogCounts: ...

    @property
    def path(self) -> Path:
        """The folder with its files."""

    @property
    def queues_in(self) -> Path:
        """The storePathRootDir with the consume queues."""

    async def view(self) -> LogView:
        """The log's present state.

        Raises:
            LogUnknownError: try again later.
            LogReadError: the files are damaged, or cannot be read.
        """
