"""How large the Java process of an official broker may be: `JAVA_OPT_EXT`, the last options on its command line.

The start script of RocketMQ asks for 8 GiB of heap and 15 GiB of direct memory whatever the machine has; in a container
that is the way to be killed. Here both come from the memory that the container is promised.
"""

from collections.abc import Sequence
from typing import Final

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB

LEAST_HEAP: Final = 256 * MIB
MOST_HEAP: Final = 8 * GIB
"""RocketMQ's own choice for a machine of any size: what is above it serves better as page cache of the log."""
LEAST_DIRECT: Final = 128 * MIB
MOST_DIRECT: Final = 4 * GIB
WITHOUT_MEMORY: Final = 2 * GIB
"""Taken for the container's memory where neither a limit nor a request says more."""

_ALWAYS: Final = ("-XX:+UseG1GC", "-XX:+ExitOnOutOfMemoryError", "-XX:-OmitStackTraceInFastThrow", "-Duser.home=/tmp")
"""A JVM without memory left ends instead of lingering as a master that answers nothing; logs and the little files that
RocketMQ keeps in the home directory go where the root file system may be read-only."""


def java_options(
    *, memory: int | None, heap: str | None = None, direct_memory: str | None = None, options: Sequence[str] = ()
) -> str:
    """The options of a JVM in a container of `memory` bytes (None: not known).

    The heap is two fifths of it, the direct memory one fifth, both within bounds; the rest is for the JVM itself, and
    page cache. `heap` and `direct_memory` are Kubernetes quantities or Java sizes (`2Gi`, `2g`) and win, `options` come
    last.
    """
    whole = memory or WITHOUT_MEMORY
    heap_size = java_size(heap) if heap else _mib(min(max(whole * 2 // 5, LEAST_HEAP), MOST_HEAP))
    direct_size = java_size(direct_memory) if direct_memory else _mib(min(max(whole // 5, LEAST_DIRECT), MOST_DIRECT))
    return " ".join(
        [f"-Xms{heap_size}", f"-Xmx{heap_size}", f"-XX:MaxDirectMemorySize={direct_size}", *_ALWAYS, *options]
    )


def java_size(text: str) -> str:
    """A size as Java's options take it: `512Mi` and `512m` are `512m`.

    Raises:
        ValueError: it is neither.
    """
    number = text.rstrip("kKmMgGi")
    unit = text[len(number) :].removesuffix("i").lower()
    if not (number.isascii() and number.isdigit()) or unit not in ("", "k", "m", "g"):
        raise ValueError(f"{text!r} is no size: write 512Mi, 2Gi, 512m or 2g")
    return number + unit


def _mib(size: int) -> str:
    return f"{size // MIB}m"
