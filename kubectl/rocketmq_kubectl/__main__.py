"""Entry point of `kubectl-rocketmq`: arguments in, exit code out, and never a traceback."""

import sys
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

from rocketmq_kubectl import cli_change, cli_controller
from rocketmq_kubectl.cli import app
from rocketmq_kubectl.errors import PluginError, WrongUsageError
from rocketmq_runtime.terminal import bug, complain

PROGRAM = "kubectl-rocketmq"
VERBS = cli_change, cli_controller
"""Imported for the commands that they register."""
ALIASES = {"getsyncstateset": "get-sync-state-set", "getbrokerepoch": "epochs", "electmaster": "elect-master"}
"""mqadmin's names, in any case."""


def main() -> None:
    """The console script."""
    sys.exit(run_command_line(sys.argv[1:]))


def run_command_line(arguments: Sequence[str]) -> int:
    """Run one command; the exit code (0 done, 1 refused, 2 wrong usage, 3 not reachable, 4 not done in time)."""
    command = typer.main.get_command(app)
    given = [ALIASES.get(one.lower(), one) for one in arguments]
    try:
        code = command.main(given or ["--help"], prog_name="kubectl rocketmq", standalone_mode=False)
    except TyperException as error:
        complain(PROGRAM, f"{error.format_message()} (see kubectl rocketmq VERB --help)")
        return WrongUsageError.exit_code
    except PluginError as error:
        complain(PROGRAM, error)
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - a bug of ours must not look like the cluster's trouble
        complain(PROGRAM, bug(error))
        return 1
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    main()
