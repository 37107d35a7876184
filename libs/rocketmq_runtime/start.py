"""The start of a process: its configuration is loaded, printed or reported in the same way for servers and operator."""

import sys
from collections.abc import Callable
from typing import Literal, Protocol, TypeVar

from rocketmq_runtime import logs
from rocketmq_runtime.command_line import EXIT_USAGE
from rocketmq_runtime.config.settings import SettingsError
from rocketmq_runtime.terminal import complain


class LogSettings(Protocol):
    """How a process logs."""

    @property
    def log_format(self) -> Literal["json", "console"]: ...
    @property
    def log_level(self) -> Literal["debug", "info", "warning", "error"]: ...


class Configuration(Protocol):
    """What a process is started with."""

    @property
    def settings(self) -> LogSettings: ...

    def as_properties(self) -> bytes:
        """Every key with its value, sorted, one `k=v` a line."""
        ...

    def report(self, file: str) -> None:
        """Log what was ignored; `file` is where the keys came from."""
        ...


C = TypeVar("C", bound=Configuration)


def start(program: str, *, load: Callable[[], C], source: str, print_config: bool, run: Callable[[C], int]) -> int:
    """The exit code of `run`, which gets the configuration once logs are set up. A wrong configuration is one line on
    standard error instead, and `print_config` prints the configuration instead.

    Args:
        load: raises SettingsError.
        source: where the keys come from, for the log.
    """
    try:
        config = load()
    except SettingsError as error:
        complain(program, error)
        return EXIT_USAGE
    if print_config:
        sys.stdout.write(config.as_properties().decode())
        return 0
    logs.configure(config.settings.log_format, config.settings.log_level)
    config.report(source)
    return run(config)
