"""The normal run of `rocketmq-broker`: parses the command line, runs one broker until SIGTERM or SIGINT.

Exit codes: 0 ended by a signal, 1 the state on disk or the machine prevents it from continuing, 2 wrong command line or
configuration, 3 a port is taken.
"""

import errno
from collections.abc import Sequence

import structlog

from rocketmq_broker.app import BrokerApp
from rocketmq_broker.host import check_resolves
from rocketmq_broker.settings import BrokerSettings
from rocketmq_broker.tables.table_file import TableDamagedError
from rocketmq_runtime.command_line import EXIT_FATAL, EXIT_PORT, freeze_startup_objects, on_end_signals
from rocketmq_runtime.config.settings import load_settings
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_runtime.server_command import run_server
from rocketmq_settings.table import OF_THE_SIDECAR
from rocketmq_store.errors import RecoveryInterruptedError, StoreError

log = structlog.get_logger(__name__)


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    return run_server(
        "rocketmq-broker",
        "A RocketMQ broker; it takes writes while its sidecar (rocketmq-sidecar) says that it is master.",
        example="broker.conf",
        load=lambda path: load_settings(
            BrokerSettings,
            path,
            known_elsewhere=OF_THE_SIDECAR,
            check=lambda settings: check_resolves("brokerIP1", settings.broker_ip1),
        ),
        serve=lambda loaded: _serve(loaded.settings),
        arguments=arguments,
    )


async def _serve(settings: BrokerSettings) -> int:
    try:
        app = BrokerApp(settings)
    except OSError as error:
        log.critical("start refused", reason=str(error))
        return EXIT_FATAL
    on_end_signals(app.stopping.set)
    try:
        await app.start()
        freeze_startup_objects()
        await app.stopping.wait()
    except OSError as error:
        log.critical("start refused", reason=str(error))
        return EXIT_PORT if error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES) else EXIT_FATAL
    except RecoveryInterruptedError:
        log.info("recovery was interrupted by a signal; the next start repeats it")
    except (StoreError, StorageError, TableDamagedError) as error:
        log.critical("start refused", reason=str(error), error=type(error).__name__)
        return EXIT_FATAL
    finally:
        await app.stop()
    return 0 if app.fatal is None else EXIT_FATAL
