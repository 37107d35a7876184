"""`rocketmq-namesrv`: parses the command line, runs one name server until SIGTERM or SIGINT.

Exit codes: 0 ended by a signal, 1 a file or the machine does not allow to go on, 2 wrong command line or
configuration, 3 a port is taken.
"""

import sys
from collections.abc import Sequence

import structlog
import uvloop

from rocketmq_namesrv.app import HostedController, HostedControllerError, NameServerApp
from rocketmq_namesrv.config import LiveConfig
from rocketmq_runtime import logs
from rocketmq_runtime.command_line import EXIT_FATAL, EXIT_PORT, EXIT_USAGE, on_end_signals, read_arguments
from rocketmq_runtime.filesystem import StorageError
from rocketmq_runtime.settings import SettingsError

log = structlog.get_logger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    options = read_arguments(
        "rocketmq-namesrv",
        "A RocketMQ name server: tells clients and tools which broker serves which topic.",
        example="namesrv.conf",
        arguments=arguments,
    )
    try:
        config = LiveConfig.load(options.config)
    except SettingsError as error:
        print(f"rocketmq-namesrv: {error}", file=sys.stderr)
        return EXIT_USAGE
    if options.print_config:
        sys.stdout.write(config.as_properties().decode())
        return 0
    logs.configure(config.settings.log_format, config.settings.log_level)
    unknown = set(config.unknown_keys)
    if config.settings.enable_controller_in_namesrv:
        from rocketmq_namesrv.embedded import KNOWN_KEYS  # noqa: PLC0415 - Raft and gRPC only where they are asked for

        unknown -= KNOWN_KEYS
    for key in sorted(unknown):
        log.warning("configuration key is not known and ignored", key=key, file=str(options.config))
    for key in config.kept_updates:
        log.info("configuration key comes from an earlier updateNamesrvConfig", key=key)
    return uvloop.run(_run(config))


async def _run(config: LiveConfig) -> int:
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
    from rocketmq_namesrv.embedded import EmbeddedController  # noqa: PLC0415 - as above

    return EmbeddedController(config.file_values, config.environ)


if __name__ == "__main__":
    sys.exit(main())
