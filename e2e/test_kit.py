"""The fixtures' own promises: waiting for what is made later, ports, and evidence without secrets."""

import base64
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterable, Mapping
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from e2e.kit import evidence, ground, lanes
from e2e.kit.cluster import Cluster, KubectlError
from e2e.kit.group import ANSWER_ATTEMPTS, Group
from e2e.pod_scripts.chaos import body_behind, last_before, name_of, record_behind, send
from rocketmq_formats.store.message import Record, read_record
from tests.gate.patience import VARIABLE
from tests.records import make_record

PASSWORD = "correct horse battery"
NAME = {"name": "speaker"}
SPEAKER = """
import os
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
print("password is", os.environ["PASSWORD"], flush=True)
ThreadingHTTPServer(("", 8080), SimpleHTTPRequestHandler).serve_forever()
"""


def secret() -> dict[str, Any]:
    data = {"password": base64.b64encode(PASSWORD.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": NAME, "data": data}


def speaker(image: str) -> dict[str, Any]:
    container = {
        "name": "speaker",
        "image": image,
        "imagePullPolicy": "Never",
        "args": ["-c", SPEAKER],
        "env": [{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "speaker", "key": "password"}}}],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
        "securityContext": {
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    spec = {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": NAME, "spec": spec}


@pytest.fixture(scope="module")
def namespace(cluster: Cluster, node_images: Mapping[str, str]) -> str:
    """With a pod that tells its secret to everybody."""
    name = cluster.namespace()
    items = {"apiVersion": "v1", "kind": "List", "items": [secret(), speaker(node_images["tester"])]}
    cluster.kubectl("-n", name, "apply", "-f", "-", input=json.dumps(items))
    cluster.wait(name, "pod/speaker", "condition=Ready")
    return name


def test_evidence_without_secrets(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    evidence.collect(cluster, tmp_path, [namespace])
    text = {path.relative_to(tmp_path / namespace).as_posix(): path.read_text() for path in tmp_path.rglob("*.*")}
    assert f"password is {evidence.REDACTED}" in text["logs/speaker.speaker.log"]
    assert "speaker" in text["pods.txt"]
    assert "Scheduled" in text["events.txt"]
    encoded = base64.b64encode(PASSWORD.encode()).decode()
    assert [name for name, content in text.items() if PASSWORD in content or encoded in content] == []
    digest = evidence.digest(tmp_path)
    assert re.search(rf"speaker.speaker: \S+ password is {evidence.REDACTED}", digest)
    assert "Started" in digest


def test_port_forward(cluster: Cluster, namespace: str) -> None:
    with (
        cluster.port_forward(namespace, "pod/speaker", 8080) as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer,
    ):
        assert answer.status == 200
    with pytest.raises(KubectlError, match="not found"), cluster.port_forward(namespace, "pod/nobody", 1):
        pass


def test_read(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("-n", namespace, "create", "configmap", "read", "--from-literal=a=b")
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    assert cluster.read(f"{path}/read")["data"] == {"a": "b"}
    assert [one["data"] for one in cluster.read(path, fieldSelector="metadata.name=read")["items"]] == [{"a": "b"}]
    with pytest.raises(KubectlError, match=f"GET {path}/none: 404 .*not found"):
        cluster.read(f"{path}/none")


def test_until(cluster: Cluster, namespace: str) -> None:
    """It sees what is made, and what is changed, while it waits."""

    def later() -> None:
        cluster.kubectl("-n", namespace, "create", "configmap", "later", "--from-literal=a=1")
        cluster.kubectl("-n", namespace, "patch", "configmap", "later", "-p", '{"data":{"a":"2"}}')

    maker = threading.Thread(target=later)
    maker.start()
    seen = cluster.until(namespace, "configmap/later", lambda one: one["data"]["a"] == "2", "a second value")
    maker.join()
    assert seen["metadata"]["name"] == "later"
    with pytest.raises(TimeoutError, match=r'waited 1 s for a third value of configmap/later.*"a": "2"'):
        cluster.until(namespace, "configmap/later", lambda one: one["data"]["a"] == "3", "a third value", timeout=1)
    with pytest.raises(TimeoutError, match="there is none"):
        cluster.until(namespace, "configmap/never", bool, "anything", timeout=1)


def test_pod_security(cluster: Cluster, namespace: str) -> None:
    spec = {"containers": [{"name": "a", "image": "a"}]}
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"}, "spec": spec}
    with pytest.raises(KubectlError, match="violates PodSecurity"):
        cluster.kubectl("-n", namespace, "create", "-f", "-", input=json.dumps(bare))


def ground_of(phase: str, *, claim: str = "Bound", waiting: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    state = (
        {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]} if waiting else {"phase": phase}
    )
    return [
        {"kind": "Pod", "metadata": {"name": "server"}, "status": {"phase": "Running"}},
        {"kind": "Pod", "metadata": {"name": "caller"}, "status": state},
        {"kind": "PersistentVolumeClaim", "metadata": {"name": "caller"}, "status": {"phase": claim}},
    ]


class Printing:
    """A cluster whose `kubectl` prints the next of these, and whose API server answers with it."""

    def __init__(self, outputs: Iterable[str]) -> None:
        self.outputs = iter(outputs)

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002 - as subprocess has it
        return next(self.outputs)

    def read(self, path: str, **query: str) -> Any:
        return json.loads(next(self.outputs))


def test_an_answer_of_which_a_part_is_missing_is_asked_for_again() -> None:
    whole = '{"now": 62947.5}\n'
    cluster = Printing(["47.5}\n", whole[:9], whole])
    assert Group(cluster, "default", "broker-a").mark() == "62947.5"
    assert not list(cluster.outputs)


def test_an_answer_that_never_arrives_is_shown() -> None:
    with pytest.raises(RuntimeError, match=r"load.py now: .* '7\\n'"):
        Group(Printing(["7\n"] * ANSWER_ATTEMPTS), "default", "broker-a").mark()


def test_a_group_that_cannot_heal_gets_half_as_long_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("e2e.kit.group.POLL", 0.001)
    monkeypatch.setenv(VARIABLE, "2")
    never_whole = Printing(repeat('{"metadata": {"generation": 1}, "status": {"phase": "Degraded"}, "items": []}'))
    group = Group(never_whole, "default", "broker-a", patience=0.004)
    for seconds in ("0.008", "0.004", "0.002"):
        with pytest.raises(AssertionError, match=f"waited {seconds} s for broker-a to be whole .*Degraded"):
            group.whole()


@pytest.mark.parametrize(
    ("resources", "log", "says"),
    [
        (ground_of("Succeeded"), "", ""),
        (ground_of("Failed"), "ground: the name of a service fails: [Errno -3]\n", "the name of a service fails"),
        (ground_of("Pending", claim="Pending"), "", "a volume claim of this cluster is not bound after 30 s"),
        (ground_of("", waiting={"reason": "ErrImageNeverPull", "message": "no tester"}), "", "ErrImageNeverPull"),
        (ground_of("Running"), "", "server Running, caller Running"),
        ([], "", "a volume claim"),
    ],
)
def test_broken_ground_is_named_in_one_sentence(resources: list[dict[str, Any]], log: str, says: str) -> None:
    problem = ground.verdict(resources, log)
    assert says in problem
    assert bool(problem) is bool(says)


def test_a_disk_on_which_the_kubelet_deletes_images_is_named() -> None:
    assert ground.disk_problem("of node n", 252 << 30, 54 << 30) == ""
    assert ground.disk_problem("of node n", 0, 0) == ""
    assert "the disk of node n has 38 of 252 GiB left" in ground.disk_problem("of node n", 252 << 30, 38 << 30)


def test_a_flipped_bit_is_in_a_body_wherever_the_search_begins() -> None:
    start, data = 1 << 20, b""
    bodies: list[range] = []
    while len(data) < 4000:
        begin = len(data)
        data += make_record(start + begin, b"body " * 5, topic=b"ledger", properties=b"KEYS\x01k\x02")
        found = read_record(data, begin, len(data), check_crc=True)
        assert isinstance(found, Record)
        bodies.append(range(found.body_start, found.body_start + 25))
    for position in range(bodies[-1][0] - 100):
        place = body_behind(data, start, position)
        assert place > position
        assert any(place in body for body in bodies)


def test_a_process_that_ended_with_the_one_before_it_is_passed_over() -> None:
    gone, there = subprocess.Popen(["true"]), subprocess.Popen(["sleep", "60"])
    gone.wait()
    send([gone.pid, there.pid], signal.SIGKILL)
    assert there.wait(60) == -signal.SIGKILL


def test_a_message_is_named_as_the_log_has_it() -> None:
    start, data, begins = 1 << 20, b"", list[int]()
    for number in range(5):
        begins.append(len(data))
        at = start + len(data)
        data += make_record(at, b"body", topic=b"ledger", queue_id=number % 4, queue_offset=7 * number, properties=b"")
    third = name_of(data, start, record_behind(data, start, begins[1] + 10))
    assert third == {"offset": start + begins[2], "size": begins[3] - begins[2], "queue": 2, "number": 14}
    end = {"offset": start + begins[4], "size": len(data) - begins[4], "queue": 0, "number": 28}
    assert last_before(data.ljust(9000, b"\0"), start) == end


def test_what_lanes_share_is_prepared_by_the_first_that_succeeds(tmp_path: Path) -> None:
    seen = []

    def prepare(*, fails: bool = False) -> None:
        with lanes.once(tmp_path, "ground") as first:
            seen.append(first)
            if fails:
                raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        prepare(fails=True)
    for _ in range(3):
        prepare()
    assert seen == [True, True, False, False]


def test_one_that_is_alone_waits_and_is_waited_for(tmp_path: Path) -> None:
    """Two run side by side; the one alone begins when they have ended, and the one after it when that has ended."""
    events: list[str] = []
    together, leave = threading.Barrier(3, timeout=60), threading.Event()

    def side_by_side(name: str) -> None:
        with lanes.turn(tmp_path, alone=False):
            together.wait()
            leave.wait(60)
            events.append(f"{name} ends")

    def alone() -> None:
        with lanes.turn(tmp_path, alone=True):
            events.append("alone begins")
            leave.wait(60)
            events.append("alone ends")

    def later() -> None:
        with lanes.turn(tmp_path, alone=False):
            events.append("later")

    threads = [threading.Thread(target=side_by_side, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    together.wait()
    for target in (alone, later):
        threads.append(threading.Thread(target=target))
        threads[-1].start()
        until_a_lock_is_waited_for(len(threads) - 2)
    assert events == []
    leave.set()
    for thread in threads:
        thread.join(60)
    assert sorted(events[:2]) == ["a ends", "b ends"]
    assert events[2:] == ["alone begins", "alone ends", "later"]


def until_a_lock_is_waited_for(count: int) -> None:
    """As many as that are waited for by this process (/proc/locks has a line with `->` for each)."""
    ends = time.monotonic() + 60
    while (
        sum("->" in line and f" {os.getpid()} " in line for line in Path("/proc/locks").read_text().splitlines())
        < count
    ):
        assert time.monotonic() < ends
        time.sleep(0.01)


class Logs(Cluster):
    """A cluster that has nothing but logs, by pod; None: the pod is gone before anybody reads its log."""

    def __init__(self, logs: Mapping[str, str | None], *, there: bool = True) -> None:
        super().__init__("none", kubectl="false", kubeconfig=Path("/dev/null"))
        self._logs, self._there = logs, there

    def kubectl(self, *arguments: str, input: str | None = None, timeout: float = 0) -> str:  # noqa: A002
        del input, timeout
        if "logs" in arguments:
            log = self._logs[arguments[arguments.index("logs") + 1]]
            if log is None:
                raise KubectlError("pods not found")
            return log
        if not self._there:
            raise KubectlError("namespaces not found")
        status = {"containerStatuses": [{"name": "main", "restartCount": 1}]}
        return json.dumps({"items": [{"metadata": {"name": name}, "status": status} for name in self._logs]})


def test_errors_that_reached_no_one_are_found_in_logs() -> None:
    bad = (
        "2026-11-29T20:00:00Z Task exception was never retrieved",
        "2026-11-29T20:00:01Z RuntimeWarning: coroutine 'f' was never awaited",
        '2026-11-29T20:00:02Z {"level": "error", "event": "work in the background has failed"}',
    )
    good = '{"level": "info", "event": "a client was never retrieved"}'
    cluster = Logs({"a-0": "\n".join((good, *bad, good)), "a-1": None, "a-2": ""})
    found = evidence.unheard(cluster, ["n"])
    assert found == [f"n/logs/a-0.main{part}.log: {line}" for part in ("", ".previous") for line in bad]
    assert evidence.unheard(Logs({"a-0": bad[0]}, there=False), ["n"]) == []
    assert [len(line) for line in evidence.unheard_lines("was never awaited" + "x" * 9000)] == [evidence.UNHEARD_LINE]
