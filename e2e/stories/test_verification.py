"""The replicas' logs are compared by jobs of Spark while the group is under load; a bad byte is found and cured.

One story in four tests, in this order: each continues where the last one ended.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.kit.cluster import KubectlError
from e2e.kit.group import Group, wait
from e2e.stories.conftest import Installation
from e2e.stories.plugin import plugin
from e2e.stories.verifying import JOB_SECONDS, SELDOM, aligned, flip, last, told_apart, verify_now

EVERY_MINUTE = {"schedule": "* * * * *", "executors": 1, "history": {"storage": {"size": "64Mi"}}}
PODS = "app.kubernetes.io/component=verify"

pytestmark = [pytest.mark.in_order, pytest.mark.java]


@pytest.fixture(scope="module")
def verified(group: Group) -> Iterator[Group]:
    """The group of all stories, with a verification as long as this module lasts. Brokers do not read their own logs
    in search of damage: they could repair it before the verification sees it."""
    group.whole()
    group.patch(config={"logCheckBytesPerSecond": "0"})
    group.whole()
    group.patch(verification=EVERY_MINUTE)
    yield group
    group.patch(verification=None, config=None)
    group.whole()


@pytest.fixture(scope="module")
def damaged() -> dict[str, str]:
    """What the second chapter leaves for the third: `pod` is whose log is damaged."""
    return {}


def test_the_schedule_runs_a_driver_and_executors(verified: Group) -> None:
    since, seen = verified.mark(), dict[str, dict[str, Any]]()

    def done() -> bool:
        seen.update({name: pod["metadata"] for name, pod in verified.pods(PODS).items()})
        return str(last(verified).get("job")).startswith(f"{verified.name}-verify-")

    wait(done, "a comparison", JOB_SECONDS, lambda: str(last(verified)) + str(list(seen)))
    roles = [metadata["labels"]["spark-role"] for metadata in seen.values()]
    assert {"driver", "executor"} <= set(roles)
    owners = [owner["kind"] for metadata in seen.values() for owner in metadata.get("ownerReferences", ())]
    assert set(owners) == {"Job", "Pod"}, "executors go with the driver"
    assert last(verified)["result"] == "Aligned", last(verified)
    wait(lambda: aligned(verified) == "True Aligned", "the condition", 30.0, lambda: aligned(verified))
    events = json.loads(verified.kubectl("get", "events", "--field-selector", "reason=LogsAligned", "-o", "json"))[
        "items"
    ]
    assert verified.name in {event["involvedObject"]["name"] for event in events}
    verified.judge(since)
    verified.patch(verification={**EVERY_MINUTE, **SELDOM})


def test_a_bad_byte_is_named_to_the_message(
    installation: Installation, verified: Group, damaged: dict[str, str]
) -> None:
    wait(lambda: not running(verified), "the last job to end", JOB_SECONDS)
    slave = verified.slaves()[0]
    offset = flip(verified, slave, last(verified))
    damaged["pod"] = slave
    told_apart(verified, slave, offset, verify_now(installation, verified))
    wait(lambda: aligned(verified) == "False Different", "the condition", 30.0, lambda: aligned(verified))
    shown = plugin(installation, "verify", verified.name, "--last", codes=(1,))
    assert slave in shown
    assert "LogsAligned:    False (Different)" in shown


def test_a_rebuilt_replica_is_aligned_again(
    installation: Installation, verified: Group, damaged: dict[str, str]
) -> None:
    since = verified.mark()
    plugin(installation, "rebuild", verified.name, damaged["pod"], "--yes-i-delete-this-replica", "--timeout", "120")
    verified.whole()
    found = verify_now(installation, verified)
    assert (found["result"], found["findings"], found["full"]) == ("Aligned", 0, True), found
    wait(lambda: aligned(verified) == "True Aligned", "the condition", 30.0, lambda: aligned(verified))
    verified.judge(since)


def test_what_was_made_for_it_goes_again(verified: Group) -> None:
    name = f"{verified.name}-verify"
    kinds = ("cronjob", "serviceaccount", "role", "rolebinding", "configmap", "service", "networkpolicy")
    for kind in kinds:
        verified.kubectl("get", kind, name)
    verified.patch(verification=None)

    def gone() -> bool:
        try:
            return verified.kubectl("get", ",".join(kinds), "-l", PODS, "--ignore-not-found").strip() == ""
        except KubectlError:
            return False

    wait(gone, "its objects to be deleted", 60.0)
    verified.kubectl("get", "persistentvolumeclaim", name)  # what was compared is not forgotten


def running(group: Group) -> list[str]:
    """Jobs that have not ended."""
    jobs = json.loads(group.kubectl("get", "jobs", "-l", PODS, "-o", "json"))["items"]
    return [job["metadata"]["name"] for job in jobs if job.get("status", {}).get("active")]
