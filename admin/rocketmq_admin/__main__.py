"""Entry point of `rocketmq-admin`: arguments in, exit code out, and never a traceback."""

import sys
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

from rocketmq_admin.cli import app
from rocketmq_admin.errors import WrongUsageError
from rocketmq_admin.run import PROGRAM
from rocketmq_runtime import terminal


def main() -> None:
    """The console script."""
    sys.exit(run_command_line(sys.argv[1:]))


def run_command_line(arguments: Sequence[str]) -> int:
    """Run one command; the exit code (0 done, 1 refused, 2 wrong usage, 3 not reachable)."""
    return terminal.ended(PROGRAM, lambda: _run(arguments))


def _run(arguments: Sequence[str]) -> object:
    command = typer.main.get_command(app)
    try:
        return command.main(_as_mqadmin_accepts_them(arguments), prog_name=PROGRAM, standalone_mode=False)
    except TyperException as error:
        raise WrongUsageError(f"{error.format_message()} (see {PROGRAM} COMMAND --help)") from error


def _as_mqadmin_accepts_them(arguments: Sequence[str]) -> list[str]:
    """mqadmin's liberties: command names in any case, `help [COMMAND]`, no arguments for an overview."""
    args = list(arguments)
    names = {info.name.lower(): info.name for info in app.registered_commands if info.name}
    at = 1 if args[:1] == ["help"] and len(args) == 2 else 0
    if args:
        args[at] = names.get(args[at].lower(), args[at])
    if not args or args == ["help"]:
        return ["--help"]
    return [args[1], "--help"] if at else args


if __name__ == "__main__":
    main()
