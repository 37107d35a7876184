"""How large the Java process of an official broker may be: `JAVA_OPT_EXT`, the last options on its command line.

The start script of RocketMQ sets 8 GiB of heap and 15 GiB of direct memory on any machine, too much for a container.
Here both are derived from the memory of the container.
"""

from collections.abc import Sequence
from typing import Final

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB

LEAST_HEAP: Final = 256 * MIB
MOST_HEAP: Final = 8 * GIB
"""RocketMQ's own value for any machine: memory above it is more useful as page cache of the log."""
LEAST_DIRECT: Final = 128 * MIB
MOST_DIRECT: Final = 4 * GIB
WITHOUT_MEMORY: Final = 2 * GIB
"""Memory of a container without limit and request."""

_ALWAYS: Final = ("-XX:+UseG1GC", "-XX:+ExitOnOutOfMemoryError", "-XX:-OmitStackTraceInFastThrow", "-Duser.home=/tmp")
"""A JVM out of memory exits instead of staying master without answering. Logs and small files of the home directory go
to /tmp, because the root file system may be read-only."""


def java_options(
    *, memory: int | None, heap: str | None = None, direct_memory: str | None = None, options: Sequence[str] = ()
) -> str:
    """The options of a JVM in a container of `memory` bytes (None: not known).

    The heap is two fifths of it, the direct memory one fifth, both within bounds; the rest is for the JVM itself, and
    page cache. `heap` and `direct_memory` are Kubernetes quantities or Java sizes (`2Gi`, `2g`) and take precedence;
    `options` come last.
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
        raise ValueError(f"{text!r} is not a size: write 512Mi, 2Gi, 512m or 2g")
    return number + unit


def _mib(size: int) -> str:
    return f"{size // MIB}m"
