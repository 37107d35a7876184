"""Runs in a privileged pod that sees the node's processes, and causes faults of them.

`chaos.py container ID SIGNAL [SECONDS]` signals every process of a container, `chaos.py process NAME SIGNAL [SECONDS]`
those of that name on the node; with SECONDS, SIGCONT follows after that time. `chaos.py outage SECONDS ID` stops the
API server for that time and kills a container during it. This is impossible from inside the container: the first
process of a PID namespace cannot be killed or stopped from within. `chaos.py flip ID FOLDER OFFSET` changes one bit of
a commit log that the container has in FOLDER, as a bad disk would: in the body of the first message behind OFFSET,
because a bit of a topic's name would change what findings say. It prints the bit's offset.
"""

import os
import signal
import struct
import sys
import time
from pathlib import Path

MAGIC = bytes.fromhex("daa320a7")
AT_MAGIC, AT_OFFSET, AT_BODY_SIZE, AT_BODY = 4, 28, 84, 88
"""Of a record whose hosts are IPv4 addresses. Source: rocketmq-all-5.3.3: MessageDecoder.java."""


def of_container(container: str) -> list[int]:
    """Processes in the container's control group."""
    return [pid for pid in _pids() if container in _read(pid, "cgroup")]


def of_name(name: str) -> list[int]:
    """Processes of that name (its first 15 characters)."""
    return [pid for pid in _pids() if _read(pid, "comm").strip() == name[:15]]


def main() -> int:
    """Run the command; returns the exit code: 1 if there was no process to signal."""
    if sys.argv[1] == "outage":
        return outage(float(sys.argv[2]), sys.argv[3])
    if sys.argv[1] == "flip":
        return flip(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    find, what, name, *seconds = sys.argv[1:]
    number = signal.Signals[name]
    pids = {"container": of_container, "process": of_name}[find](what)
    for pid in pids:
        os.kill(pid, number)
    if seconds:
        time.sleep(float(seconds[0]))
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    print(pids)
    return 0 if pids else 1


def outage(seconds: float, container: str) -> int:
    """Stop the API server; after a tenth of the time kill the container's processes."""
    servers = of_name("kube-apiserver")
    for pid in servers:
        os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds / 10)
        victims = of_container(container)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        time.sleep(seconds * 9 / 10)
    finally:
        for pid in servers:
            os.kill(pid, signal.SIGCONT)
    return 0 if servers and victims else 1


def flip(container: str, folder: Path, offset: int) -> int:
    """The lowest bit in the middle of a body. The file is the last one whose name is not above the offset."""
    (pid, *_) = of_container(container)
    root = Path(f"/proc/{pid}/root") / folder.relative_to("/")
    start, path = max((int(path.name), path) for path in root.iterdir() if int(path.name) <= offset)
    with path.open("r+b") as file:
        place = body_behind(file.read(), start, offset - start)
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1]))
        file.flush()
        os.fsync(file.fileno())
    print(start + place)
    return 0


def body_behind(data: bytes, start: int, position: int) -> int:
    """The middle of the first body behind `position` in a file that begins at `start`. Raises ValueError."""
    while True:
        record = data.index(MAGIC, position) - AT_MAGIC
        position = record + AT_MAGIC + len(MAGIC)
        if record >= 0 and struct.unpack_from(">q", data, record + AT_OFFSET) == (start + record,):
            size: int = struct.unpack_from(">i", data, record + AT_BODY_SIZE)[0]
            if size > 0:
                return record + AT_BODY + size // 2


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:  # it has ended meanwhile
        return ""


if __name__ == "__main__":
    sys.exit(main())
