"""What our command line tools print, and how they complain: used by rocketmq-admin and kubectl-rocketmq.

Nothing here needs asyncio or the network; tools import it before they know what they will do.
"""

import os
import sys
from collections.abc import Mapping

import msgspec


def to_json(document: Mapping[str, object]) -> str:
    """`document` on one line, keys in the order given."""
    return msgspec.json.encode(document).decode() + "\n"


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
    """What to say of an error that nobody foresaw, with the place where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "?" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    return f"a bug, please report it: {where}: {type(error).__name__}: {error}"


def forget_standard_output() -> None:
    """After a BrokenPipeError: who read us has enough, and Python must not complain again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
