"""`rocketmq-sidecar`: parses the command line, runs one sidecar until SIGTERM or SIGINT.

Exit codes: 0 ended by a signal, 1 the state on disk or the machine prevents it from continuing, 2 wrong command line
or configuration, 3 a port is taken. What an operator can fix while it runs (a refused identity, another sidecar that
still holds the replica, controllers that do not know it) does not end it: /readyz and one log line report it.
"""

import asyncio
import errno
import sys
from collections.abc import Sequence

import structlog

from rocketmq_runtime import background
from rocketmq_runtime.command_line import EXIT_FATAL, EXIT_PORT, EXIT_USAGE, freeze_startup_objects, on_end_signals
from rocketmq_runtime.config.settings import SettingsError, load_settings
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_runtime.server_command import run_server
from rocketmq_settings.table import OF_THE_BROKER
from rocketmq_sidecar.app import SidecarApp
from rocketmq_sidecar.observer.app import ObserverApp
from rocketmq_sidecar.replication.replication import ReplicationError
from rocketmq_sidecar.settings import SidecarSettings

log = structlog.get_logger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    return run_server(
        "rocketmq-sidecar",
        "The process beside a native broker: identity, role, write lease and replication.",
        example="broker.conf",
        load=lambda path: load_settings(SidecarSettings, path, known_elsewhere=OF_THE_BROKER),
        serve=lambda loaded: _serve(loaded.settings),
        arguments=arguments,
    )


async def _serve(settings: SidecarSettings) -> int:
    try:
        app = ObserverApp(settings) if settings.broker_engine == "apache" else SidecarApp(settings)
    except SettingsError as error:
        log.critical("start refused", reason=str(error))
        return EXIT_USAGE
    stopping = asyncio.Event()
    on_end_signals(stopping.set)
    ends = [background.awaited(event.wait(), "end") for event in (stopping, app.failed)]
    starting = background.awaited(app.start(), "start")
    try:
        # The start may wait for an operator, so a signal must end it too.
        await asyncio.wait([starting, *ends], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            freeze_startup_objects()
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    except OSError as error:
        port = error.errno in {errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES}
        log.critical("start refused", reason=f"cannot open a port: {error}" if port else str(error))
        return EXIT_PORT if port else EXIT_FATAL
    except (ReplicationError, StorageError) as error:
        log.critical("start refused", reason=str(error), error=type(error).__name__)
        return EXIT_FATAL
    except SettingsError as error:
        log.critical("start refused", reason=str(error))
        return EXIT_USAGE
    finally:
        for task in (starting, *ends):
            task.cancel()
        await asyncio.gather(starting, *ends, return_exceptions=True)
        await app.stop()
    return 0 if app.fatal is None else EXIT_FATAL


if __name__ == "__main__":
    sys.exit(main())
