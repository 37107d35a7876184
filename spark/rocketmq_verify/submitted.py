"""Standard error of a program that spark-submit runs, kept apart from its standard output. Called by `spark/verify.py`.

spark-submit reads both from one pipe and writes them to its own standard output, where a result in JSON would be mixed
with what a run tells while it goes on. Its JVM has a standard error of its own: what is for people goes there.
"""

import io
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""In the environment of a program that spark-submit has started."""


class Elsewhere(io.TextIOBase):
    """A stream whose text `say` takes; what it does not take any more is lost, as nobody could be told of it."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say

    def write(self, text: str, /) -> int:
        """Said at once."""
        try:
            self._say(text)
        except Exception:  # noqa: BLE001 - py4j's are of many kinds; the JVM is ending, by Ctrl-C for example
            return 0
        return len(text)

    def writable(self) -> bool:
        """It is."""
        return True


def keep_apart(environ: Mapping[str, str] = os.environ) -> None:
    """From now on `sys.stderr` is that of spark-submit, if that has started us."""
    if GATEWAY not in environ:
        return
    from pyspark import SparkContext  # noqa: PLC0415 - nobody else needs it so early

    SparkContext._ensure_initialized()  # noqa: SLF001 - the only way to its JVM before there is a session
    jvm: Any = SparkContext._jvm  # noqa: SLF001
    sys.stderr = Elsewhere(jvm.System.err.print)
