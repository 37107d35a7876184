"""The official cluster that `capture` records, behind proxies, and what it needs to be asked."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rocketmq_demo.apache import jars, servers
from rocketmq_demo.apache.processes import LARGER_HEAP, SMALL_HEAP, JavaProcess
from tests.golden.recorder import BACK, Proxy, Samples, ask
from tests.lab.controller import start_controller
from tests.lab.mqadmin import run_mqadmin

NAMESERVER = 9876
CONTROLLERS = {"n0": 9878, "n1": 9888, "n2": 9898}
BROKERS = {1: 30911, 2: 30921, 3: 30931}
CLUSTER, GROUP = "DefaultCluster", "broker-a"
NAMES = {
    11: "pull-message",
    15: "update-consumer-offset",
    17: "update-and-create-topic",
    21: "get-all-topic-config",
    26: "get-broker-config",
    28: "get-broker-runtime-info",
    30: "get-max-offset",
    31: "get-min-offset",
    34: "heart-beat",
    35: "unregister-client",
    43: "get-all-consumer-offset",
    45: "get-all-delay-offset",
    60: "get-timer-check-point",
    61: "get-timer-metrics",
    103: "register-broker",
    104: "unregister-broker",
    105: "get-route-info-by-topic",
    106: "get-broker-cluster-info",
    201: "get-all-subscription-group-config",
    310: "send-message-v2",
    402: "get-all-message-request-mode",
    904: "broker-heartbeat",
    1001: "alter-sync-state-set",
    1002: "elect-master",
    1003: "register-broker-to-controller",
    1004: "get-replica-info",
    1005: "get-metadata-info",
    1006: "get-sync-state-data",
    1007: "get-broker-epoch-cache",
    1008: "notify-broker-role-changed",
    1009: "update-controller-config",
    1010: "get-controller-config",
    1011: "clean-broker-data",
    1012: "get-next-broker-id",
    1013: "apply-broker-id",
    9999: "unknown-code",
}


class Lab:
    """One life of the whole cluster behind proxies, all of it speaking one kind of header."""

    def __init__(self, folder: Path, samples: Samples, serialize: str) -> None:
        self.folder, self.samples = folder, samples
        # DLedger's own codes do not fit the 16 bits of a binary header, so its members could not elect a leader.
        self.members = CONTROLLERS if serialize == "JSON" else dict(list(CONTROLLERS.items())[:1])
        self.option = f"-Drocketmq.serialize.type={serialize}"
        self.processes: list[JavaProcess] = []
        self.brokers: dict[int, JavaProcess] = {}
        self.proxies = [Proxy(NAMESERVER, "name server", samples)]
        self.proxies += [Proxy(port, "controller", samples) for port in self.members.values()]
        # The VIP port is where slaves fetch topics from.
        self.proxies += [Proxy(port - way, "broker", samples) for port in BROKERS.values() for way in (0, 2)]

    def start_servers(self) -> None:
        small = [*SMALL_HEAP, self.option]
        bind = {"bindAddress": BACK}
        self.processes.append(
            servers.start_nameserver(self.folder / "namesrv", port=NAMESERVER, config=bind, options=small)
        )
        for member in self.members:
            self.processes.append(
                start_controller(self.folder / member, member=member, peers=self.members, config=bind, options=small)
            )
        wait("a controller leader", 60, lambda: self.leader() is not None)

    def start_broker(self, number: int) -> None:
        process = servers.start_broker(
            self.folder / f"broker-{number}",
            port=BROKERS[number],
            controllers=list(self.members.values()),
            nameservers=[NAMESERVER],
            cluster=CLUSTER,
            name=GROUP,
            config={"bindAddress": BACK},
            options=[*LARGER_HEAP, self.option],
        )
        self.brokers[number] = process
        self.processes.append(process)

    def leader(self) -> int | None:
        """The port of the controller that can serve writes."""
        for port in self.members.values():
            with contextlib.suppress(OSError):
                if ask(port, 1012, {"clusterName": CLUSTER, "brokerName": "nobody"}).code == 0:
                    return port
        return None

    def follower(self) -> int | None:
        leader = self.leader()
        return next((port for port in self.members.values() if port != leader), None)

    def in_sync(self) -> list[int]:
        leader = self.leader()
        if leader is None:
            return []
        body = ask(leader, 1004, {"brokerName": GROUP}).body
        ids: list[int] = json.loads(body)["syncStateSet"] if body else []
        return sorted(ids)

    def master(self) -> int:
        return int((ask(self.leader() or 0, 1004, {"brokerName": GROUP}).ext or {})["masterBrokerId"])

    def provoke(self, port: int, code: int, ext: dict[str, str] | None, expected: int, body: bytes = b"") -> None:
        """Ask something wrong on purpose and keep the refusal."""
        frame = ask(port, code, ext, body)
        if frame.code != expected:
            print(f"  {code} {ext} answered {frame.code} {frame.remark!r}, expected {expected}", file=sys.stderr)
        question = {"code": code, "ext": ext, "body": body.decode()}
        self.samples.keep(frame, code, "answered by a Java server to a request made by this tool", question)

    def admin(self, *arguments: str) -> tuple[str, str]:
        result = run_mqadmin(arguments, folder=self.folder / "admin", options=[self.option])
        trace = [line for line in result.stderr.splitlines() if not line.startswith("\tat ")]
        return result.stdout, "".join(line + "\n" for line in trace)

    def close(self) -> None:
        for process in self.processes:
            process.close()
        for proxy in self.proxies:
            proxy.close()


MEMBERS = ", ".join(f"{member} 127.0.0.1:{port}" for member, port in CONTROLLERS.items())
INTRODUCTION = f"""# What mqadmin prints

Output of the official mqadmin {jars.ROCKETMQ_VERSION}, recorded by `python -m tests.golden.capture` against three
official controllers ({MEMBERS}) and three official brokers of the group `{GROUP}`.
Every `.txt` is the exact standard output; the exit code is always 0. A failure shows only as a stack trace on standard
error, kept in `.stderr.txt` without its `at` lines.
"""


class Transcript:
    """The files of tests/golden/mqadmin and the table that says how each was made."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder  # None: run the commands, keep nothing
        self.rows: list[tuple[str, str, str]] = []

    def run(self, lab: Lab, name: str, situation: str, arguments: Sequence[str]) -> None:
        stdout, stderr = lab.admin(*arguments)
        if self.folder is None:
            return
        (self.folder / f"{name}.txt").write_text(stdout)
        if stderr:
            (self.folder / f"{name}.stderr.txt").write_text(stderr)
        self.rows.append((f"{name}.txt" + (" (+ .stderr)" if stderr else ""), " ".join(arguments), situation))

    def save(self) -> None:
        if self.folder is None:
            return
        table = "".join(f"| {a} | `mqadmin {b}` | {c} |\n" for a, b, c in self.rows)
        (self.folder / "README.md").write_text(
            f"{INTRODUCTION}\n| file | command | situation |\n|---|---|---|\n{table}"
        )


def wait(what: str, seconds: float, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(0.3)
    print(f"  {what}", file=sys.stderr)
