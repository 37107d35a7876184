"""What the commands of the processes share: arguments, exit codes, end signals, the garbage collector's setup.

Options of processes are few and parsed with argparse: typer, which the tools use, would load pydantic and rich into
every process (95 ms of each start, 14 MiB).
"""

import argparse
import asyncio
import gc
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from rocketmq_runtime.terminal import complain
from rocketmq_runtime.version import __version__

EXIT_FATAL = 1
"""The state on disk or the machine prevents the process from continuing."""
EXIT_USAGE = 2
"""Wrong command line or configuration."""
EXIT_PORT = 3
"""A port is taken."""


class Arguments(argparse.ArgumentParser):
    """The options of all processes: --print-config, --version, --help. Wrong arguments end with one line on standard
    error and EXIT_USAGE."""

    def __init__(self, program: str, description: str, *, epilog: str) -> None:
        super().__init__(prog=program, description=description, epilog=epilog, allow_abbrev=False)
        self.add_argument("-p", "--print-config", action="store_true", help="print every key with its value and exit")
        self.add_argument("--version", action="version", version=f"{program} {__version__}")

    def error(self, message: str) -> NoReturn:
        complain(self.prog, f"{message} (see {self.prog} --help)")
        raise SystemExit(EXIT_USAGE)


class CommandLine(msgspec.Struct, frozen=True):
    """The parsed arguments of a server."""

    config: Path | None
    print_config: bool


def read_arguments(
    program: str, description: str, *, example: str, arguments: Sequence[str] | None = None
) -> CommandLine:
    """The arguments of this server, or `arguments`; `example` is a configuration file's name for the help text.

    Raises:
        SystemExit: --help, --version, or wrong arguments.
    """
    epilog = f"Every key may also come from the environment: ROCKETMQ_<KEY>. Example: {program} -c {example}"
    parser = Arguments(program, description, epilog=epilog)
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="configuration in Java properties form")
    options = parser.parse_args(arguments)
    return CommandLine(options.config, options.print_config)


def on_end_signals(stop: Callable[[], None]) -> None:
    """Call `stop` in the running loop at SIGTERM and SIGINT."""
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop)


def freeze_startup_objects() -> None:
    """To be called once, when the process begins to serve: the garbage collector ignores all objects made until now.

    A full collection stops the event loop while it visits every object that may be part of a cycle, whichever thread
    it begins in: 20 ms for the imported modules alone. Values of large tables are `gc=False` where they are defined.
    """
    gc.collect()
    gc.freeze()
