"""Output, error messages and exit codes of our command line tools, rocketmq-admin and kubectl-rocketmq; the start of
each process uses `complain`.

Nothing here needs asyncio or the network: tools import it for every command.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import msgspec

_CONTROLS = re.compile("[\x7f-\x9f]")
"""Control characters that JSON does not escape."""


class ToolError(Exception):
    """A command, or a part of it, that did not do what was asked; the text is one line with the reason."""

    exit_code: ClassVar[int] = 1


def ended(program: str, main: Callable[[], object]) -> int:
    """The exit code of `program`: what `main` returns, if that is a number, else 0. An exception of `main` becomes one
    line on standard error, never a traceback."""
    try:
        code = main()
    except ToolError as error:
        complain(program, error)
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - a bug of ours must not look like a problem of the cluster
        complain(program, bug(error))
        return 1
    return code if isinstance(code, int) else 0


def interrupted(command: Callable[[], int], *, repeats: bool) -> int:
    """The exit code of `command`. Ctrl-C is the normal end (0) of a command that `repeats`, and so is a reader that
    closes the pipe."""
    try:
        return command()
    except KeyboardInterrupt:
        return 0 if repeats else 130
    except BrokenPipeError:
        forget_standard_output()
        return 0


def show(program: str, text: str, problems: Sequence[ToolError] = ()) -> int:
    """Print `text` and, on standard error, each problem; the exit code, which is the first problem's."""
    sys.stdout.write(text)
    sys.stdout.flush()
    for problem in problems:
        complain(program, problem)
    return problems[0].exit_code if problems else 0


def to_json(document: Mapping[str, object]) -> str:
    """`document` on one line, keys in the order given; without control characters."""
    text = msgspec.json.encode(document).decode()
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def one_line(error: object, limit: int = 2000) -> str:
    """Text of an error for a terminal: line ends become spaces, other control characters question marks.

    Remarks come from the network and may hold anything.
    """
    text = " ".join(str(error).splitlines())
    return "".join(char if char.isprintable() else "?" for char in text)[:limit]


def complain(program: str, error: object) -> None:
    """One line on standard error."""
    print(f"{program}: {one_line(error)}", file=sys.stderr)


def bug(error: Exception) -> str:
    """The message for an unexpected error, with the place where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "?" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    return f"a bug, please report it: {where}: {type(error).__name__}: {error}"


def forget_standard_output() -> None:
    """After a BrokenPipeError: keeps Python from failing again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
