"""`rocketmq-sidecar`: parses the command line, runs one sidecar until SIGTERM or SIGINT.

Exit codes: 0 ended by a signal, 1 the state on disk or the machine does not allow to go on, 2 wrong command line or
configuration, 3 a port is taken. What an operator can put right while it runs (a refused identity, another sidecar
that still holds the replica, controllers that do not know it) does not end it: /readyz and one log line say so.
"""

import asyncio
import errno
import sys
from collections.abc import Sequence

import structlog
import uvloop

from rocketmq_runtime import logs
from rocketmq_runtime.command_line import EXIT_FATAL, EXIT_PORT, EXIT_USAGE, on_end_signals, read_arguments
from rocketmq_runtime.filesystem import StorageError
from rocketmq_runtime.settings import (
    SettingsError,
    build_settings,
    from_environment,
    read_properties_file,
    to_text_values,
)
from rocketmq_sidecar.app import SidecarApp
from rocketmq_sidecar.observer.app import ObserverApp
from rocketmq_sidecar.replication import ReplicationError
from rocketmq_sidecar.settings import BROKER_KEYS, SidecarSettings

log = structlog.get_logger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    options = read_arguments(
        "rocketmq-sidecar",
        "The process beside a native broker: identity, role, write lease and replication.",
        example="broker.conf",
        arguments=arguments,
    )
    try:
        file = {} if options.config is None else read_properties_file(options.config)
        loaded = build_settings(SidecarSettings, file, from_environment(SidecarSettings))
    except SettingsError as error:
        print(f"rocketmq-sidecar: {error}", file=sys.stderr)
        return EXIT_USAGE
    settings = loaded.settings
    if options.print_config:
        for key, value in to_text_values(settings).items():
            print(f"{key}={value}")
        return 0
    logs.configure(settings.log_format, settings.log_level)
    for key in loaded.unknown_keys:
        if key not in BROKER_KEYS:
            log.warning("configuration key is not known and ignored", key=key, file=str(options.config))
    return uvloop.run(_run(settings))


async def _run(settings: SidecarSettings) -> int:
    app = ObserverApp(settings) if settings.broker_engine == "apache" else SidecarApp(settings)
    stopping = asyncio.Event()
    on_end_signals(stopping.set)
    loop = asyncio.get_running_loop()
    ends = [loop.create_task(event.wait()) for event in (stopping, app.failed)]
    starting = loop.create_task(app.start())
    try:
        # The start may wait for an operator, so a signal has to end it too.
        await asyncio.wait([starting, *ends], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
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
