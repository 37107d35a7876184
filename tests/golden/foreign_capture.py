"""Records what clients other than Java 5.3.3 say to a Java broker: `foreign/*.bin` and its index.

    python -m tests.golden.foreign_capture      (from the root; needs a JDK, mvn, go, node and npm; takes two minutes)

Each client consumes with tags, in order, and as one of a broadcast group; the requests that carry a body are kept.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketmq_demo.apache import jars, servers
from rocketmq_demo.apache.processes import LARGER_HEAP, SMALL_HEAP, JavaProcess
from rocketmq_demo.processes import OwnedProcess
from tests.golden.recorder import BACK, FRONT, Frame, Proxy, Samples, ask
from tests.interop.foreign import Client, cpp_client, go_client, node_client

HERE = Path(__file__).parent
SOURCES = HERE / "foreign_clients"
NAMESERVER, BROKER = 39876, 39911
TOPIC, GROUP, TAGS = "golden-topic", "golden-group", "TagA || TagB"
NAMES = {34: "heart-beat", 41: "lock-batch-mq", 42: "unlock-batch-mq"}
MODES = ("cluster", "broadcast", "orderly")


@dataclass(frozen=True)
class Foreign:
    """A consumer as a command that takes name server, group, topic, expression and mode."""

    name: str
    version: str
    command: Sequence[str]
    environment: dict[str, str]
    modes: Sequence[str] = MODES


class Requests(Samples):
    """Keeps the first request of each kind that names the group."""

    def keep(self, frame: Frame, request_code: int, obtained: str, provoked_by: dict[str, Any] | None = None) -> None:
        if not frame.is_response and GROUP.encode() in frame.body:
            super().keep(frame, request_code, obtained, provoked_by)


def main() -> None:
    for port in (NAMESERVER, BROKER - 2, BROKER, BROKER + 1):
        socket.create_server(("", port)).close()  # raises if somebody is there
    jars.classpath()
    folder = HERE / "foreign"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        index = record(Path(work), folder)
    (folder / "index.json").write_text(json.dumps(index, indent=1, ensure_ascii=False) + "\n")
    sys.stderr.write(f"{len(index)} frames\n")


def clients(work: Path) -> Iterator[Foreign]:
    yield foreign(go_client(), "rocketmq-client-go 2.1.2")
    yield foreign(cpp_client(), "librocketmq of rocketmq 0.4.4")
    yield foreign(node_client(), "ali-ons 3.12.0")
    java4 = work / "java4"
    shutil.copytree(SOURCES / "java4", java4)
    target = java4 / "classpath.txt"
    goal = ["dependency:build-classpath", f"-Dmdep.outputFile={target}"]
    subprocess.run(["mvn", "--batch-mode", "--quiet", *goal], cwd=java4, check=True)
    command = [jars.java(), "-cp", target.read_text(), str(java4 / "Consumer4.java")]
    yield Foreign("java4", "rocketmq-client 4.9.8", command, dict(os.environ))


def foreign(client: Client, version: str) -> Foreign:
    return Foreign(client.name, version, client.command, dict(client.environment), modes=client.modes)


def record(work: Path, folder: Path) -> list[dict[str, Any]]:
    """One life of a Java name server and a Java broker, and everybody who talks to them."""
    config = {"bindAddress": BACK, "enableControllerMode": False, "brokerRole": "ASYNC_MASTER", "brokerId": 0}
    nothing = Requests(folder, {}, "")
    proxies = [Proxy(NAMESERVER, "name server", nothing)]
    proxies += [Proxy(port, "broker", nothing) for port in (BROKER, BROKER - 2)]
    processes: list[JavaProcess] = [
        servers.start_nameserver(work / "names", port=NAMESERVER, config={"bindAddress": BACK}, options=SMALL_HEAP),
        servers.start_broker(
            work / "broker", port=BROKER, controllers=[], nameservers=[NAMESERVER], config=config, options=LARGER_HEAP
        ),
    ]
    index: list[dict[str, Any]] = []
    try:
        wait_for("the broker to register", lambda: ask(NAMESERVER, 105, {"topic": "TBW102"}).code == 0)
        topic = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6"}
        ask(BROKER, 17, {**topic, "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"})
        wait_for("the topic's route", lambda: ask(NAMESERVER, 105, {"topic": TOPIC}).code == 0)
        for client in clients(work):
            for mode in client.modes:
                names = {code: f"{name}-{client.name}-{mode}" for code, name in NAMES.items()}
                samples = Requests(folder, names, client.version)
                for proxy in proxies:
                    proxy.samples = samples
                consume(work / f"{client.name}-{mode}", client, mode, samples)
                index += [{**entry, "client": client.name, "mode": mode} for entry in samples.index]
    finally:
        for process in reversed(processes):
            process.close()
        for proxy in proxies:
            proxy.close()
    return sorted(index, key=lambda entry: (entry["code"], entry["file"]))


def consume(folder: Path, client: Foreign, mode: str, samples: Samples) -> None:
    """One consumer's life, until it has sent what its mode sends."""
    wanted = {34, 41} if mode == "orderly" else {34}
    arguments = [f"{FRONT}:{NAMESERVER}", f"{GROUP}-{client.name}-{mode}", TOPIC, TAGS, mode]
    command = [*client.command, *arguments]
    with OwnedProcess(client.name, command, folder=folder, environment=client.environment, stdin_open=True) as process:
        try:
            wait_for(f"{wanted} of {process.name}", lambda: wanted <= {entry["code"] for entry in samples.index})
        except TimeoutError:
            sys.stderr.write(process.tail())
            raise
        process.close_stdin()
        process.wait(60)


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if condition():
                sys.stderr.write(f"  {what}\n")
                return
        except OSError:
            pass
        time.sleep(0.3)
    raise TimeoutError(f"waited 60 s for {what}")


if __name__ == "__main__":
    main()
