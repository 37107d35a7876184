"""Runs in a privileged pod that sees the node's processes, and causes faults of them.

`chaos.py container ID SIGNAL [SECONDS]` signals every process of a container, `chaos.py process NAME SIGNAL [SECONDS]`
those of that name on the node; with SECONDS, SIGCONT follows after that time. `chaos.py outage SECONDS ID` stops the
API server for that time and kills a container during it. This is impossible from inside the container: the first
process of a PID namespace cannot be killed or stopped from within.

The others damage a commit log that the container has in FOLDER. `chaos.py flip ID FOLDER OFFSET` changes one bit, as a
bad disk would: in the body of the first message behind OFFSET, because a bit of a topic's name would change what
findings say. It prints the bit's offset. `chaos.py message ID FOLDER OFFSET` changes nothing: it prints as JSON which
message that is. `chaos.py lead ID FOLDER NUMBER OFFSET` lets unit NUMBER of the consume queue in FOLDER lead to OFFSET.
`chaos.py lose FOLDER SIDECAR BROKER [SIDECAR BROKER ...]` deletes the last file of each log and kills the processes of
all these containers, as if their nodes had failed at once; it prints as JSON where that file began and the last message
before it.
"""

import json
import os
import signal
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path

MAGIC = bytes.fromhex("daa320a7")
AT_MAGIC, AT_QUEUE, AT_NUMBER, AT_OFFSET, AT_BODY_SIZE, AT_BODY = 4, 12, 20, 28, 84, 88
"""Of a record whose hosts are IPv4 addresses. Source: rocketmq-all-5.3.3: MessageDecoder.java."""
UNIT_SIZE = 20


def of_container(container: str) -> list[int]:
    """Processes in the container's control group."""
    return [pid for pid in _pids() if container in _read(pid, "cgroup")]


def of_name(name: str) -> list[int]:
    """Processes of that name (its first 15 characters)."""
    return [pid for pid in _pids() if _read(pid, "comm").strip() == name[:15]]


def send(pids: list[int], number: signal.Signals) -> None:
    """To all that are still there: with the first process of a container the others end, too."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def main() -> int:
    """Run the command; returns the exit code: 1 if there was no process to signal."""
    if sys.argv[1] == "outage":
        return outage(float(sys.argv[2]), sys.argv[3])
    if sys.argv[1] == "flip":
        return flip(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    if sys.argv[1] == "message":
        start, path = file_with(folder_of(sys.argv[2], Path(sys.argv[3])), int(sys.argv[4]))
        data = path.read_bytes()
        print(json.dumps(name_of(data, start, record_behind(data, start, int(sys.argv[4]) - start))))
        return 0
    if sys.argv[1] == "lead":
        return lead(folder_of(sys.argv[2], Path(sys.argv[3])), int(sys.argv[4]), int(sys.argv[5]))
    if sys.argv[1] == "lose":
        return lose(Path(sys.argv[2]), sys.argv[3:])
    find, what, name, *seconds = sys.argv[1:]
    number = signal.Signals[name]
    pids = {"container": of_container, "process": of_name}[find](what)
    send(pids, number)
    if seconds:
        time.sleep(float(seconds[0]))
        send(pids, signal.SIGCONT)
    print(pids)
    return 0 if pids else 1


def outage(seconds: float, container: str) -> int:
    """Stop the API server; after a tenth of the time kill the container's processes."""
    servers = of_name("kube-apiserver")
    send(servers, signal.SIGSTOP)
    try:
        time.sleep(seconds / 10)
        victims = of_container(container)
        send(victims, signal.SIGKILL)
        time.sleep(seconds * 9 / 10)
    finally:
        send(servers, signal.SIGCONT)
    return 0 if servers and victims else 1


def folder_of(container: str, folder: Path) -> Path:
    """A folder of that container, as this pod sees it."""
    (pid, *_) = of_container(container)
    return Path(f"/proc/{pid}/root") / folder.relative_to("/")


def file_with(folder: Path, offset: int) -> tuple[int, Path]:
    """Start and path of the last file whose name is not above the offset."""
    return max((int(path.name), path) for path in folder.iterdir() if int(path.name) <= offset)


def flip(container: str, folder: Path, offset: int) -> int:
    """The lowest bit in the middle of a body."""
    start, path = file_with(folder_of(container, folder), offset)
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


def lead(folder: Path, number: int, offset: int) -> int:
    """The rest of the unit stays: the size of its message, and the code of its tags."""
    start, path = file_with(folder, number * UNIT_SIZE)
    with path.open("r+b") as file:
        file.seek(number * UNIT_SIZE - start)
        file.write(struct.pack(">q", offset))
        file.flush()
        os.fsync(file.fileno())
    return 0


def lose(folder: Path, containers: list[str]) -> int:
    """The last file with a record; what is behind it goes, too."""
    begin, last = 0, dict[str, int]()
    for sidecar in containers[::2]:
        files = sorted(folder_of(sidecar, folder).iterdir())
        used = [path for path in files if MAGIC in path.read_bytes()[: AT_MAGIC + len(MAGIC)]]
        begin, before = int(used[-1].name), used[-2]
        last = last_before(before.read_bytes(), int(before.name))
        for path in files[files.index(used[-1]) :]:
            path.unlink()
    send([pid for container in containers for pid in of_container(container)], signal.SIGKILL)
    print(json.dumps({"begin": begin, "last": last}))
    return 0


def last_before(data: bytes, start: int) -> dict[str, int]:
    """The name of the last message in these bytes."""
    record = record_behind(data, start, 0)
    while True:
        try:
            record = record_behind(data, start, record + AT_BODY)
        except ValueError:
            return name_of(data, start, record)


def body_behind(data: bytes, start: int, position: int) -> int:
    """The middle of the first body behind `position` in a file that begins at `start`. Raises ValueError."""
    record = record_behind(data, start, position)
    return record + AT_BODY + _body_size(data, record) // 2


def record_behind(data: bytes, start: int, position: int) -> int:
    """Where the first message with a body begins whose magic is behind `position`. Raises ValueError."""
    while True:
        record = data.index(MAGIC, position) - AT_MAGIC
        position = record + AT_MAGIC + len(MAGIC)
        if (
            record >= 0
            and struct.unpack_from(">q", data, record + AT_OFFSET) == (start + record,)
            and _body_size(data, record) > 0
        ):
            return record


def name_of(data: bytes, start: int, record: int) -> dict[str, int]:
    """Of a message: where it is in the log and in its queue."""
    (queue,) = struct.unpack_from(">i", data, record + AT_QUEUE)
    (number,) = struct.unpack_from(">q", data, record + AT_NUMBER)
    (size,) = struct.unpack_from(">i", data, record)
    return {"offset": start + record, "size": size, "queue": queue, "number": number}


def _body_size(data: bytes, record: int) -> int:
    size: int = struct.unpack_from(">i", data, record + AT_BODY_SIZE)[0]
    return size


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:  # it has ended meanwhile
        return ""


if __name__ == "__main__":
    sys.exit(main())
