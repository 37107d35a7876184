"""The command of a server: its configuration is loaded, printed or reported in the same way for all four."""

import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import uvloop

from rocketmq_runtime import logs
from rocketmq_runtime.command_line import EXIT_USAGE, read_arguments
from rocketmq_runtime.config.settings import SettingsError


class LogSettings(Protocol):
    """How a server logs."""

    @property
    def log_format(self) -> Literal["json", "console"]: ...
    @property
    def log_level(self) -> Literal["debug", "info", "warning", "error"]: ...


class Configuration(Protocol):
    """What a server is started with."""

    @property
    def settings(self) -> LogSettings: ...

    def as_properties(self) -> bytes:
        """Every key with its value, sorted, one `k=v` a line."""
        ...

    def report(self, file: str) -> None:
        """Log what was ignored; `file` is where the keys came from."""
        ...


C = TypeVar("C", bound=Configuration)


def run_server(
    program: str,
    description: str,
    *,
    example: str,
    load: Callable[[Path | None], C],
    serve: Callable[[C], Coroutine[Any, Any, int]],
    arguments: Sequence[str] | None = None,
) -> int:
    """Run one server until it ends; returns the exit code.

    Args:
        example: name of a configuration file, for the help text.
        load: from the file and the environment; raises SettingsError.
        serve: the server itself; returns the exit code.

    Raises:
        SystemExit: --help, --version, or wrong arguments, which are explained on standard error.
    """
    options = read_arguments(program, description, example=example, arguments=arguments)
    try:
        config = load(options.config)
    except SettingsError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return EXIT_USAGE
    if options.print_config:
        sys.stdout.write(config.as_properties().decode())
        return 0
    logs.configure(config.settings.log_format, config.settings.log_level)
    config.report(str(options.config))
    return uvloop.run(serve(config))
