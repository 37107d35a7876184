"""Confirmation of a change that cannot be undone: the user reads the consequences and types its name.

Used by `elect-master` and `rebuild`. Scripts use a flag instead.
"""

import sys
from typing import TextIO

from rocketmq_kubectl.errors import NotConfirmedError


def require_typed(expected: str, consequences: str, *, flag: str, stdin: TextIO | None = None) -> None:
    """Ask on standard error for `expected`; returns if the user typed it.

    Raises:
        NotConfirmedError: the user typed something else, or there is no terminal.
    """
    source = sys.stdin if stdin is None else stdin
    if not source.isatty():
        raise NotConfirmedError(f"cannot ask for confirmation without a terminal: use {flag}; nothing was done")
    print(consequences, file=sys.stderr)
    print(f"Type {expected!r} to continue: ", end="", file=sys.stderr, flush=True)
    if source.readline(1000).strip() != expected:
        raise NotConfirmedError("not confirmed; nothing was done")
