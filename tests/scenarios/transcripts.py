"""Stories as text: a file is a list of commands with the transcript each one must print.

    # what happens and why it matters
    command with=arguments
    ----
    the expected transcript

Blocks are separated by blank lines. With ROCKETMQ_HA_REWRITE=1 the transcripts are written again: commit the difference
only if you understand each line of it.
"""

import os
from collections.abc import Callable
from pathlib import Path

REWRITE = os.environ.get("ROCKETMQ_HA_REWRITE") == "1"
SEPARATOR = "----"


def play(path: Path, run: Callable[[str], list[str]]) -> None:
    """Run every command of the file through `run` and compare, or rewrite, the transcripts."""
    written = path.read_text(encoding="utf-8")
    played = "\n\n".join(_play_block(block, run) for block in written.strip().split("\n\n")) + "\n"
    if REWRITE:
        path.write_text(played, encoding="utf-8")
    else:
        assert written == played, f"{path.name} tells another story, see the difference"


def _play_block(block: str, run: Callable[[str], list[str]]) -> str:
    head = block.split(f"\n{SEPARATOR}", maxsplit=1)[0]
    commands = [line for line in head.splitlines() if not line.startswith("#")]
    if not commands:
        return block
    printed = [line for command in commands for line in run(command)]
    return "\n".join([head, SEPARATOR, *printed])
