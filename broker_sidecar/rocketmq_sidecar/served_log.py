"""What the verification may ask of a replica's log, without gRPC: the seam between `log_service` and who knows the log.

Implemented by `native_log`, which has the live state of replication, and by `observer.log`, which reads the files of an
Apache broker.
"""

from pathlib import Path
from typing import Protocol

from rocketmq_api.log_view import LogView


class LogUnknownError(Exception):
    """Nothing can be said about the log yet; the text says why."""


class LogCounts:
    """What was done for the verification since the start, in bytes of the log; for the metrics."""

    def __init__(self) -> None:
        self.digested = self.sent = 0


class ServedLog(Protocol):
    """One replica's."""

    @property
    def counts(self) -> LogCounts: ...

    @property
    def path(self) -> Path:
        """The folder with its files."""

    async def view(self) -> LogView:
        """As it is now.

        Raises:
            LogUnknownError: try again later.
            LogReadError: the files are not as they should be, or cannot be read.
        """
