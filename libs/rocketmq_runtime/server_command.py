"""The command of a server, the same for all four."""

from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from rocketmq_runtime.command_line import read_arguments
from rocketmq_runtime.start import Configuration, start

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
    return start(
        program,
        load=lambda: load(options.config),
        source=str(options.config),
        print_config=options.print_config,
        run=lambda config: uvloop.run(serve(config)),
    )
