"""What the commands of the processes share: arguments, exit codes, end signals, the garbage collector's setup."""

import argparse
import asyncio
import gc
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from rocketmq_runtime.version import __version__

EXIT_FATAL = 1
"""The state on disk or the machine prevents the process from continuing."""
EXIT_USAGE = 2
"""Wrong command line or configuration; argparse ends with it too."""
EXIT_PORT = 3
"""A port is taken."""


class CommandLine(msgspec.Struct, frozen=True):
    """The parsed arguments."""

    config: Path | None
    print_config: bool


def read_arguments(
    program: str, description: str, *, example: str, arguments: Sequence[str] | None = None
) -> CommandLine:
    """The arguments of this process, or `arguments`; `example` is a configuration file's name for the help text.

    Raises:
        SystemExit: --help, --version, or wrong arguments, which are reported.
    """
    parser = argparse.ArgumentParser(
        prog=program,
        description=description,
        epilog=f"Every key may also come from the environment: ROCKETMQ_<KEY>. Example: %(prog)s -c {example}",
    )
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="configuration in Java properties form")
    parser.add_argument("-p", "--print-config", action="store_true", help="print every key with its value and exit")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
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
