"""The class path with the programs of this lab, which tests and benchmarks need and the demo does not."""

from collections.abc import Sequence
from pathlib import Path

from rocketmq_demo.apache import jars
from rocketmq_demo.apache.processes import JavaProcess

_SOURCES = Path(__file__).with_name("java")


def classpath() -> str:
    """RocketMQ, the demo's programs and those in java/; the first call on a machine downloads and compiles.

    Raises:
        ApacheEngineUnavailable: no Java or no Maven, or the build failed.
    """
    return jars.classpath(_SOURCES)


class LabProcess(JavaProcess):
    """One running program of java/."""

    def __init__(
        self,
        name: str,
        main: str,
        arguments: Sequence[str],
        *,
        folder: Path,
        options: Sequence[str],
        tethered: bool = True,
    ) -> None:
        super().__init__(
            name, main, arguments, folder=folder, options=options, tethered=tethered, classpath=classpath()
        )
