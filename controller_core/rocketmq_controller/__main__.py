"""`rocketmq-controller`: parses the command line, runs one controller until SIGTERM or SIGINT.

Exit codes: 0 ended by a signal, 1 the state on disk or the machine prevents it from continuing, 2 wrong command line or
configuration, 3 a port is taken.
"""

import sys
from collections.abc import Sequence

import structlog

from rocketmq_controller.app import ControllerApp
from rocketmq_controller.config import LiveConfig
from rocketmq_controller.raft import RaftError, RaftSettingsError
from rocketmq_runtime.command_line import EXIT_FATAL, EXIT_PORT, EXIT_USAGE, freeze_startup_objects, on_end_signals
from rocketmq_runtime.config.settings import SettingsError
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_runtime.server_command import run_server

log = structlog.get_logger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    return run_server(
        "rocketmq-controller",
        "A RocketMQ controller (RIP-44): keeps SyncStateSets and elects masters.",
        example="controller.conf",
        load=LiveConfig.load,
        serve=_serve,
        arguments=arguments,
    )


async def _serve(config: LiveConfig) -> int:
    try:
        app = ControllerApp(config)
    except (SettingsError, RaftSettingsError) as error:
        log.error("configuration refused", reason=str(error))
        return EXIT_USAGE
    on_end_signals(app.stopping.set)
    try:
        await app.start()
        freeze_startup_objects()
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
