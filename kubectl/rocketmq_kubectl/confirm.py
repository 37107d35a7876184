"""Typed confirmation of what cannot be undone: its name, typed by somebody who was told what will happen.

Used by `elect-master` and `rebuild`. Scripts give the flag that says the same.
"""

import sys
from typing import TextIO

from rocketmq_kubectl.errors import NotConfirmedError


def typed(expected: str, consequences: str, *, flag: str, stdin: TextIO | None = None) -> None:
    """Ask on standard error for `expected`; returns if it was typed.

    Raises:
        NotConfirmedError: something else was typed, or there is no terminal to ask at.
    """
    source = sys.stdin if stdin is None else stdin
    if not source.isatty():
        raise NotConfirmedError(f"nobody can be asked here (no terminal): give {flag} if you mean it; nothing was done")
    print(consequences, file=sys.stderr)
    print(f"Type {expected!r} to go on: ", end="", file=sys.stderr, flush=True)
    if source.readline(1000).strip() != expected:
        raise NotConfirmedError("not confirmed; nothing was done")
