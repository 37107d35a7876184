"""`rocketmq-broker`: parses the command line, runs one broker until SIGTERM or SIGINT.

Exit codes: 0 ended by a signal, 1 the state on disk or the machine does not allow to go on, 2 wrong command line or
configuration, 3 a port is taken.
"""

import argparse
import asyncio
import errno
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog
import uvloop

from rocketmq_broker.app import BrokerApp
from rocketmq_broker.persistence import TableDamagedError
from rocketmq_broker.settings import SIDECAR_KEYS, BrokerSettings
from rocketmq_runtime import logs
from rocketmq_runtime.filesystem import StorageError
from rocketmq_runtime.settings import (
    SettingsError,
    build_settings,
    from_environment,
    read_properties_file,
    to_text_values,
)
from rocketmq_runtime.version import __version__
from rocketmq_store.errors import RecoveryInterruptedError, StoreError

EXIT_FATAL = 1
EXIT_USAGE = 2
EXIT_PORT = 3

log = structlog.get_logger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="rocketmq-broker",
        description="A RocketMQ broker; it takes writes while its sidecar (rocketmq-sidecar) says that it is master.",
        epilog="Every key may also come from the environment: ROCKETMQ_<KEY>. Example: %(prog)s -c broker.conf",
    )
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="configuration in Java properties form")
    parser.add_argument("-p", "--print-config", action="store_true", help="print every key with its value and exit")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    options = parser.parse_args(arguments)
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
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, app.stopping.set)
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


if __name__ == "__main__":
    sys.exit(main())
