"""What a campaign needs of the machine, checked before it begins."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from rocketmq_demo.apache import jars

TOOLS = {
    "cc": "gcc libc6-dev",
    "ip": "iproute2",
    "ss": "iproute2",
    "sysctl": "procps",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
    "umount": "mount",
    "losetup": "mount",
    "mkfs.ext4": "e2fsprogs",
}
"""Commands, and the Debian packages that have them; hack/campaign.sh installs those."""


class MissingError(Exception):
    """This machine cannot run a campaign; the message names the remedy."""


def missing_tools() -> list[str]:
    """Those of TOOLS that are not on the PATH."""
    return [name for name in TOOLS if shutil.which(name) is None]


def packages(tools: Iterable[str]) -> str:
    """What to install for them, as words."""
    return " ".join(sorted({package for name in tools for package in TOOLS[name].split()}))


def check(*, official: bool) -> None:
    """Raises MissingError. With `official` it makes the Java class path too: rounds have no network to fetch it by."""
    missing = missing_tools()
    if missing:
        raise MissingError(f"not found: {', '.join(missing)}; apt-get install {packages(missing)}")
    if os.geteuid() != 0:
        raise MissingError("network namespaces and mounts need root")
    with tempfile.TemporaryDirectory() as folder:
        _try("network namespaces", "unshare", "--net", "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
        image = Path(folder) / "image"
        image.write_bytes(bytes(1 << 20))
        _try("ext4", "mkfs.ext4", "-q", "-F", str(image))
        _try("loop devices", "unshare", "--mount", "mount", "-o", "loop", str(image), folder)
        _try("a C compiler with headers", "cc", "-E", "-include", "dlfcn.h", "-x", "c", "/dev/null")
    if official:
        try:
            jars.java()
            jars.classpath()
        except jars.ApacheEngineUnavailable as error:
            raise MissingError(f"stories with official brokers: {error}") from error


def _try(what: str, *command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingError(f"no {what} on this machine: {' '.join(command)}: {done.stderr.strip()[-300:]}")


if __name__ == "__main__":
    print(packages(missing_tools()))
