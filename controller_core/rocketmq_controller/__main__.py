"""`rocketmq-controller`: parses the command line, runs one controller until SIGTERM or SIGINT.

Exit codes: 0 ended by a signal, 1 the state on disk or the machine does not allow to go on, 2 wrong command line or
configuration, 3 a port is taken.
"""

import sys
from collections.abc import Sequence

import structlog
import uvloop

from rocketmq_controller.app import ControllerApp
from rocketmq_controller.config import LiveConfig
from rocketmq_controller.raft import RaftError, RaftSettingsError
from rocketmq_runtime import logs
from rocketmq_runtime.command_line import EXIT_FATAL, EXIT_PORT, EXIT_USAGE, on_end_signals, read_arguments
from rocketmq_runtime.filesystem import StorageError
from rocketmq_runtime.settings import SettingsError

log = structlog.get_logger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    options = read_arguments(
        "rocketmq-controller",
        "A RocketMQ controller (RIP-44): keeps SyncStateSets and elects masters.",
        example="controller.conf",
        arguments=arguments,
    )
    try:
        config = LiveConfig.load(options.config)
    except SettingsError as error:
        print(f"rocketmq-controller: {error}", file=sys.stderr)
        return EXIT_USAGE
    if options.print_config:
        sys.stdout.write(config.as_properties().decode())
        return 0
    logs.configure(config.settings.log_format, config.settings.log_level)
    for key in config.unknown_keys:
        log.warning("configuration key is not known and ignored", key=key, file=str(options.config))
    for key in config.kept_updates:
        log.info("configuration key comes from an earlier updateControllerConfig", key=key)
    return uvloop.run(_run(config))


async def _run(config: LiveConfig) -> int:
    try:
        app = ControllerApp(config)
    except (SettingsError, RaftSettingsError) as error:
        log.error("configuration refused", reason=str(error))
        return EXIT_USAGE
    on_end_signals(app.stopping.set)
    try:
        await app.start()
        await app.stopping.wait()
    except OSError as error:
        log.error("cannot open a port", reason=str(error))
        return EXIT_PORT
    except (RaftError, StorageError) as error:
        log.critical("start refused", reason=str(error), error=type(error).__name__)
        return EXIT_FATAL
    finally:
        await app.stop()
    return 0 if app.fatal is None else EXIT_FATAL


if __name__ == "__main__":
    sys.exit(main())
