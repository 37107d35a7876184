"""Keeps standard error of a program that spark-submit runs apart from its standard output. Called by `spark/verify.py`.

spark-submit reads both from one pipe and writes them to its own standard output, where a result in JSON would be mixed
with the progress of the run. Its JVM has a standard error of its own: text for people goes there.
"""

import io
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""In the environment of a program that spark-submit has started."""


class JvmStream(io.TextIOBase):
    """A stream that passes its text to `write_text`; text that it no longer accepts is lost."""

    def __init__(self, write_text: Callable[[str], object]) -> None:
        self._write_text = write_text

    def write(self, text: str, /) -> int:
        """Unbuffered."""
        try:
            self._write_text(text)
        except Exception:  # noqa: BLE001 - py4j's are of many kinds; the JVM is ending, by Ctrl-C for example
            return 0
        return len(text)

    def writable(self) -> bool:
        return True


def keep_apart(environ: Mapping[str, str] = os.environ) -> None:
    """Set `sys.stderr` to spark-submit's, if that has started this process."""
    if GATEWAY not in environ:
        return
    from pyspark import SparkContext  # noqa: PLC0415 - only needed here so early

    SparkContext._ensure_initialized()  # noqa: SLF001 - the only way to its JVM before there is a session
    jvm: Any = SparkContext._jvm  # noqa: SLF001
    sys.stderr = JvmStream(jvm.System.err.print)
