"""`rocketmq-namesrv`: parses the command line, runs one name server until SIGTERM or SIGINT.

Exit codes: 0 ended by a signal, 1 a file or the machine prevents it from continuing, 2 wrong command line or
configuration, 3 a port is taken.
"""

import sys
from collections.abc import Sequence

import structlog

from rocketmq_namesrv.app import HostedController, HostedControllerError, NameServerApp
from rocketmq_namesrv.config import LiveConfig
from rocketmq_runtime.command_line import EXIT_FATAL, EXIT_PORT, EXIT_USAGE, freeze_startup_objects, on_end_signals
from rocketmq_runtime.config.settings import SettingsError
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_runtime.server_command import run_server

log = structlog.get_logger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    return run_server(
        "rocketmq-namesrv",
        "A RocketMQ name server: answers clients and tools which broker serves which topic.",
        example="namesrv.conf",
        load=LiveConfig.load,
        serve=_serve,
        arguments=arguments,
    )


async def _serve(config: LiveConfig) -> int:
    try:
        app = NameServerApp(config, _controller(config))
    except SettingsError as error:
        log.error("configuration refused", reason=str(error))
        return EXIT_USAGE
    except StorageError as error:
        log.critical("start refused", reason=str(error))
        return EXIT_FATAL
    on_end_signals(app.stopping.set)
    try:
        await app.start()
        freeze_startup_objects()
        await app.stopping.wait()
    except OSError as error:
        log.error("cannot open a port", reason=str(error))
        return EXIT_PORT
    except (HostedControllerError, StorageError) as error:
        log.critical("start refused", reason=str(error))
        return EXIT_FATAL
    finally:
        await app.stop()
    return EXIT_FATAL if app.fatal else 0


def _controller(config: LiveConfig) -> HostedController | None:
    """The controller to host.

    Raises:
        SettingsError: its part of the configuration is refused.
    """
    if not config.settings.enable_controller_in_namesrv:
        return None
    from rocketmq_namesrv.embedded import EmbeddedController  # noqa: PLC0415 - Raft and gRPC only where they are asked for

    return EmbeddedController(config.file_values, config.environ)


if __name__ == "__main__":
    sys.exit(main())
