"""What `rocketmq-broker` does as a rule: parses the command line, runs one broker until SIGTERM or SIGINT.

Exit codes: 0 ended by a signal, 1 the state on disk or the machine does not allow to go on, 2 wrong command line or
configuration, 3 a port is taken.
"""

import errno
import sys
from collections.abc import Sequence

import structlog
import uvloop

from rocketmq_broker.app import BrokerApp
from rocketmq_broker.persistence import TableDamagedError
from rocketmq_broker.settings import SIDECAR_KEYS, BrokerSettings
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
from rocketmq_store.errors import RecoveryInterruptedError, StoreError

log = structlog.get_logger(__name__)


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = read_arguments(
        "rocketmq-broker",
        "A RocketMQ broker; it takes writes while its sidecar (rocketmq-sidecar) says that it is master.",
        example="broker.conf",
        arguments=arguments,
    )
    try:
        file = read_properties_file(options.config) if options.config is not None else {}
        loaded = build_settings(BrokerSettings, file, from_environment(BrokerSettings))
    except SettingsError as error:
        print(f"rocketmq-broker: {error}", file=sys.stderr)
        return EXIT_USAGE
    if options.print_config:
        sys.stdout.writelines(f"{key}={value}\n" for key, value in to_text_values(loaded.settings).items())
        return 0
    logs.configure(loaded.settings.log_format, loaded.settings.log_level)
    for key in loaded.unknown_keys:
        if key not in SIDECAR_KEYS:
            log.warning("configuration key is not known and ignored", key=key, file=str(options.config))
    return uvloop.run(_run(loaded.settings))


async def _run(settings: BrokerSettings) -> int:
    try:
        app = BrokerApp(settings)
    except OSError as error:
        log.critical("start refused", reason=str(error))
        return EXIT_FATAL
    on_end_signals(app.stopping.set)
    try:
        await app.start()
        await app.stopping.wait()
    except OSError as error:
        log.critical("start refused", reason=str(error))
        return EXIT_PORT if error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES) else EXIT_FATAL
    except RecoveryInterruptedError:
        log.info("recovery ended by a signal, the next start begins it anew")
    except (StoreError, StorageError, TableDamagedError) as error:
        log.critical("start refused", reason=str(error), error=type(error).__name__)
        return EXIT_FATAL
    finally:
        await app.stop()
    return 0 if app.fatal is None else EXIT_FATAL
