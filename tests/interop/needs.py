"""`python -m tests.interop.needs`: what these tests stand on, before the first one. Exit code 1 if CI lacks something;
elsewhere the tests that need it are skipped."""

import shutil
import sys
import tempfile
from collections.abc import Callable

from rocketmq_demo.apache import jars
from rocketmq_demo.ports import NoFreePortsError, PortPool
from tests.interop import browser, foreign
from tests.lab import programs
from tests.needed import IN_CI

DISK_BYTES = 4 << 30
"""Free space for the stores of all official brokers of a run."""


def _disk() -> None:
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < DISK_BYTES:
        raise OSError(f"{tempfile.gettempdir()} has {free >> 20} MiB free, less than {DISK_BYTES >> 20}")


def _ports() -> None:
    with PortPool() as pool:
        pool.block()


CHECKS: dict[str, Callable[[], object]] = {
    "Java": jars.java,
    "RocketMQ's jars and programs": programs.classpath,
    "the Go client": foreign.go_client,
    "the C++ client": foreign.cpp_client,
    "the Node client": foreign.node_client,
    "the browser": browser.browser_folder,
    "disk": _disk,
    "ports": _ports,
}


def missing() -> list[str]:
    """One sentence for each thing that is not there. The first call on a machine downloads and compiles."""
    found = []
    for name, check in CHECKS.items():
        try:
            check()
        except (jars.ApacheEngineUnavailable, foreign.ClientUnavailableError, NoFreePortsError, OSError) as error:
            found.append(f"{name}: {error}")
    return found


def main() -> int:
    lacking = missing()
    for sentence in lacking:
        print(f"interop: {sentence}", file=sys.stderr)
    return int(bool(lacking) and IN_CI)


if __name__ == "__main__":
    sys.exit(main())
