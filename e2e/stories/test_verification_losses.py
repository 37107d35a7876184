"""What no replica can show by itself, because all are wrong in the same way, is found by the job of the schedule; and a
driver that is killed half-way continues where it was.

A group of its own, which stays damaged: nobody has a right copy. One job finds everything, in two attempts.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from e2e.kit.group import Group, wait
from e2e.stories.conftest import Installation, example
from e2e.stories.plugin import plugin
from e2e.stories.verifying import FOLDER, JOB_SECONDS, SELDOM, aligned, last

pytestmark = [pytest.mark.in_order, pytest.mark.java]

NAME = "broker-v"
TOPIC = f"ledger-{NAME}"
QUEUES = f"/data/store/consumequeue/{TOPIC}"
FILE = 1 << 20
"""Bytes of a file of the log: a leg of a run ends with one."""
MESSAGES, BODY = 350, 32 << 10
"""About eleven files, of which the last one has a few messages."""
VERIFICATION = {
    **SELDOM,
    "executors": 0,
    "chunkSize": "64Ki",
    # The slowest: a file takes three seconds, a quarter of the time is one attempt's, and half of that is the first
    # leg's, which has seven or eight files. Spark, which could take most of an attempt to start, is not used.
    "rateLimit": "1M",
    "timeoutSeconds": 200,
    "history": {"storage": {"size": "64Mi"}},
}
KILLED = 137


class Message(msgspec.Struct, frozen=True):
    """A message by its place in the log and in its queue."""

    offset: int
    size: int
    queue: int
    number: int

    @property
    def name(self) -> str:
        return f"message {self.number} of queue {self.queue} of {TOPIC}"


class Driver(msgspec.Struct, frozen=True):
    """A driver's pod."""

    name: str
    started: str
    code: int | None
    """None while it runs."""


@pytest.fixture(scope="module")
def damaged(installation: Installation) -> Iterator[Group]:
    """Three replicas with some messages that all have, which nobody sends to or reads any longer. Deleted in the end.

    Brokers do not read their own logs in search of damage: they could repair it before the verification sees it.
    """
    *others, group = example("brokergroup.yaml")
    group["metadata"]["name"] = NAME
    group["spec"]["config"] = {"mappedFileSizeCommitLog": str(FILE), "logCheckBytesPerSecond": "0"}
    group["spec"]["verification"] = VERIFICATION
    installation.apply([*others, group])
    there = Group(installation.cluster, installation.namespace, NAME)
    there.whole()
    server = installation.cluster.json("-n", installation.namespace, "get", "nameserver", "main")
    there.fill(server["status"]["namesrvAddr"], installation.tester, messages=MESSAGES, body=BODY)
    there.start_chaos(installation.chaos_namespace, installation.tester)
    yield there
    there.kubectl("delete", f"brokergroup/{NAME}")
    there.kubectl("wait", "--for=delete", "pods", "-l", f"rocketmq-ha.io/group={NAME}", "--timeout=90s")


def test_what_all_have_lost_or_damaged_is_found_by_a_run_whose_driver_was_killed(
    installation: Installation, damaged: Group
) -> None:
    pods = sorted(damaged.pod_uids())
    begin, left = lose_the_last_file(damaged, pods)
    body, unit = message(damaged, pods[0], begin // 8), message(damaged, pods[0], begin // 8 * 7)
    for pod in pods:
        damaged.chaos("flip", damaged.container_id(pod, "sidecar"), FOLDER, str(begin // 8))
    queue = f"{QUEUES}/{unit.queue}"
    damaged.chaos("lead", damaged.container_id(pods[1], "sidecar"), queue, str(unit.number), str(unit.offset + 1))

    with ThreadPoolExecutor(1) as thread:
        now = thread.submit(
            lambda: plugin(installation, "verify", NAME, "--now", "-o", "json", codes=(1,), seconds=JOB_SECONDS)
        )
        kill_half_way(damaged)
        found = json.loads(now.result())["verification"]

    three = ", ".join(pods)
    at = f"from {body.offset} to {body.offset + body.size}"
    wanted = [
        f"{body.name}: no sound record {at}, equally in {three}: body ",
        f"{pods[1]}: {unit.name}: the unit points to {unit.offset + 1}, ",
        f"the bytes from {begin} to ",
    ]
    assert [detail[: len(text)] for detail, text in zip(found["details"], wanted, strict=True)] == wanted, found
    assert f"the last message before them is {left.name} at {left.offset}, stored 20" in found["details"][-1]
    assert (found["result"], found["findings"], found["alignedUpTo"]) == ("Different", 3, body.offset), found
    assert last(damaged)["details"] == found["details"]
    wait(lambda: aligned(damaged) == "False Different", "the condition", 30.0, lambda: aligned(damaged))

    first, second = drivers(damaged)
    assert (first.code, second.code) == (KILLED, 1)
    assert found["bytes"] < begin * 3 // 4, "what the first one had read was read again"
    assert found["oldestReadTime"] < second.started, "it does not count as read"


def lose_the_last_file(group: Group, pods: list[str]) -> tuple[int, Message]:
    """In all replicas, which fail at once; returns where it began and the last message before it, when they are back.

    They wait for an operator, because none has what was acknowledged.
    """
    containers = [group.container_id(pod, name) for pod in pods for name in ("sidecar", "broker")]
    lost = json.loads(group.chaos("lose", FOLDER, *containers))

    def told() -> bool:
        return all("lost what it held" in group.kubectl("logs", pod, "-c", "sidecar") for pod in pods)

    wait(told, "the sidecars to tell of the loss", 120.0, lambda: group.kubectl("get", "pods", "-o", "wide"))
    return lost["begin"], msgspec.convert(lost["last"], Message)


def message(group: Group, pod: str, offset: int) -> Message:
    """The first one behind this offset."""
    text = group.chaos("message", group.container_id(pod, "sidecar"), FOLDER, str(offset))
    return msgspec.json.decode(text, type=Message)


def drivers(group: Group) -> list[Driver]:
    """Pods of the job, in the order of their starts."""
    label = f"app.kubernetes.io/component=verify,rocketmq-ha.io/group={group.name}"
    found = []
    for name, pod in group.pods(label).items():
        status = pod["status"]
        states = [one["state"] for one in status.get("containerStatuses", ())]
        codes = [state["terminated"]["exitCode"] for state in states if "terminated" in state]
        found.append(Driver(name, status.get("startTime", ""), codes[0] if codes else None))
    return sorted(found, key=lambda driver: driver.started)


def kill_half_way(group: Group) -> None:
    """The first driver, when it has kept its first leg and reads the second one."""

    def reads_on() -> bool:
        found = drivers(group)
        if not found or not found[0].started:
            return False
        try:
            log = group.kubectl("logs", found[0].name)
        except RuntimeError:  # its container is not started yet
            return False
        assert found[0].code is None, f"it ended by itself:\n{log}"
        return log.count("  comparing ") > 1

    wait(reads_on, "a second leg", JOB_SECONDS, lambda: str(drivers(group)))
    group.signal(drivers(group)[0].name, "verify", "SIGKILL")
