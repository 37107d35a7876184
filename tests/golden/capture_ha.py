"""Records what two official brokers say on their HA connection.

    python -m tests.golden.capture_ha     (from the root of the repository; needs java and mvn, takes about a minute)

A slave learns its master's HA address from the name server, so a proxy between the two puts another port into that
answer, behind which the HA proxy listens. Kept are the raw bytes of each direction of each connection, up to a bound.
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from rocketmq_demo.apache import jars, servers
from rocketmq_demo.apache.processes import SMALL_HEAP
from tests.golden.lab import wait
from tests.golden.recorder import FRONT, ask
from tests.lab.controller import start_controller

FOLDER = Path(__file__).parent / "ha"
NAMESERVER, NAMES_PROXY, CONTROLLER = 29876, 29576, 29878
BROKERS = {1: 29911, 2: 29921}
HA_PROXIES = {1: 29512, 2: 29522}
"""As many digits as the real ports, 29912 and 29922, so that one fits in place of the other."""
GROUP = "broker-a"
KEEP = 12_000


class Tap:
    """Forwards a port; `rewrite` changes what comes back, `kept` holds what was said, by connection."""

    def __init__(self, port: int, target: int, rewrite: list[tuple[bytes, bytes]] | None = None) -> None:
        self.target, self.rewrite = target, rewrite or []
        self.kept: list[tuple[bytearray, bytearray]] = []
        listener = socket.create_server((FRONT, port))
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            near, _ = listener.accept()
            try:
                far = socket.create_connection((FRONT, self.target), timeout=3)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            said = (bytearray(), bytearray())
            self.kept.append(said)
            for source, sink, kept, back in ((near, far, said[0], False), (far, near, said[1], True)):
                threading.Thread(target=self._pump, args=(source, sink, kept, back), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, kept: bytearray, back: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                for old, new in self.rewrite if back else ():
                    data = data.replace(old, new)
                kept += data[: max(0, KEEP - len(kept))]
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def in_sync() -> tuple[int, list[int]]:
    with suppress(OSError, ValueError, LookupError):
        answer = ask(CONTROLLER, 1004, {"brokerName": GROUP}, host=FRONT)
        if answer.body:
            return int((answer.ext or {})["masterBrokerId"]), sorted(json.loads(answer.body)["syncStateSet"])
    return 0, []


def send(port: int, count: int) -> None:
    for number in range(count):
        ext = {
            "producerGroup": "g",
            "topic": "golden",
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "1",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": "1700000000000",
            "flag": "0",
            "reconsumeTimes": "0",
            "unitMode": "false",
            "batch": "false",
        }
        answer = ask(port, 10, ext, b"message %d" % number, host=FRONT)
        assert answer.code == 0, answer


def main() -> None:
    work = Path(tempfile.mkdtemp(prefix="golden-ha-"))
    swap = [(f":{BROKERS[n] + 1}".encode(), f":{HA_PROXIES[n]}".encode()) for n in BROKERS]
    Tap(NAMES_PROXY, NAMESERVER, swap)
    taps = {number: Tap(HA_PROXIES[number], BROKERS[number] + 1) for number in BROKERS}
    processes = []

    def broker(number: int) -> None:
        processes.append(
            servers.start_broker(
                work / f"broker-{number}",
                port=BROKERS[number],
                controllers=[CONTROLLER],
                nameservers=[NAMES_PROXY],
                name=GROUP,
                config={"allAckInSyncStateSet": True, "mappedFileSizeCommitLog": 1024 * 1024},
            )
        )

    try:
        processes.append(servers.start_nameserver(work / "namesrv", port=NAMESERVER, options=SMALL_HEAP))
        processes.append(start_controller(work / "n0", member="n0", peers={"n0": CONTROLLER}, options=SMALL_HEAP))
        broker(1)
        wait("broker 1 as master", 90, lambda: in_sync() == (1, [1]))
        wait("broker 1 taking messages", 30, lambda: sent(BROKERS[1]))
        send(BROKERS[1], 2)
        broker(2)
        wait("two replicas in sync", 90, lambda: in_sync() == (1, [1, 2]))
        send(BROKERS[1], 3)
        processes[2].kill9()
        wait("broker 2 as master", 60, lambda: in_sync() == (2, [2]))
        wait("broker 2 taking messages", 30, lambda: sent(BROKERS[2]))
        send(BROKERS[2], 2)
        broker(1)
        wait("two replicas in sync again", 120, lambda: in_sync() == (2, [1, 2]))
        send(BROKERS[2], 1)
    finally:
        for process in processes:
            process.close()
    keep(taps)
    shutil.rmtree(work, ignore_errors=True)


def sent(port: int) -> bool:
    with suppress(OSError, AssertionError):
        send(port, 1)
        return True
    return False


def keep(taps: dict[int, Tap]) -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    index = []
    for master, tap in taps.items():
        for number, (up, down) in enumerate((kept for kept in tap.kept if kept[0]), 1):
            name = f"master-{master}-connection-{number}"
            (FOLDER / f"{name}-slave.bin").write_bytes(up)
            (FOLDER / f"{name}-master.bin").write_bytes(down)
            index.append({"name": name, "rocketmq_version": jars.ROCKETMQ_VERSION, "cut_at": KEEP})
    (FOLDER / "index.json").write_text(json.dumps(index, indent=1) + "\n")
    print(f"{len(index)} connections kept in {FOLDER}", file=sys.stderr)


if __name__ == "__main__":
    main()
