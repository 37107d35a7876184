"""Entry point of `kubectl-rocketmq`: arguments in, exit code out, and never a traceback."""

import sys
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

from rocketmq_kubectl import cli_change, cli_controller
from rocketmq_kubectl.cli import app
from rocketmq_kubectl.errors import WrongUsageError
from rocketmq_runtime import terminal

PROGRAM = "kubectl-rocketmq"
VERBS = cli_change, cli_controller
"""Imported for the commands that they register."""
ALIASES = {"getsyncstateset": "get-sync-state-set", "getbrokerepoch": "epochs", "electmaster": "elect-master"}
"""mqadmin's names, in any case."""


def main() -> None:
    """The console script."""
    sys.exit(run_command_line(sys.argv[1:]))


def run_command_line(arguments: Sequence[str]) -> int:
    """Run one command; the exit code (0 done, 1 refused, 2 wrong usage, 3 unreachable, 4 timed out)."""
    return terminal.ended(PROGRAM, lambda: _run(arguments))


def _run(arguments: Sequence[str]) -> object:
    command = typer.main.get_command(app)
    given = [ALIASES.get(argument.lower(), argument) for argument in arguments]
    try:
        return command.main(given or ["--help"], prog_name="kubectl rocketmq", standalone_mode=False)
    except TyperException as error:
        raise WrongUsageError(f"{error.format_message()} (see kubectl rocketmq VERB --help)") from error


if __name__ == "__main__":
    main()
