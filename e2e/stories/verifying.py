"""Starts a comparison of a group's logs like an on-call engineer, and reads the result from the group."""

import json

from e2e.kit.group import Group
from e2e.stories.conftest import Installation
from e2e.stories.plugin import plugin

SELDOM = {"schedule": "0 0 1 1 *"}
FOLDER = "/data/store/commitlog"
"""Of a replica, as its containers have it."""
JOB_SECONDS = 240.0


def last(group: Group) -> dict[str, object]:
    """status.verification."""
    found = group.status().get("verification", {})
    assert isinstance(found, dict)
    return found


def aligned(group: Group) -> str:
    """The condition, as `status reason`."""
    found = group.condition("LogsAligned")
    return f"{found.get('status')} {found.get('reason')}"


def verify_now(installation: Installation, group: Group) -> dict[str, object]:
    """Compares everything; what it found."""
    text = plugin(
        installation, "verify", group.name, "--now", "--full", "-o", "json", codes=(0, 1), seconds=JOB_SECONDS
    )
    found: dict[str, object] = json.loads(text)["verification"]
    return found


def flip(group: Group, pod: str, found: dict[str, object]) -> int:
    """Change a bit of that replica's log, about in the middle of what was `found` aligned; its offset."""
    up_to = found["alignedUpTo"]
    assert isinstance(up_to, int)
    return int(group.chaos("flip", group.container_id(pod, "sidecar"), FOLDER, str(up_to // 2)))


def told_apart(group: Group, pod: str, offset: int, found: dict[str, object]) -> None:
    """What was found is that bit and nothing else, named to the message."""
    assert (found["result"], found["findings"]) == ("Different", 1), found
    details, limit = found["details"], found["alignedUpTo"]
    assert isinstance(details, list)
    assert f"is damaged in {pod}" in details[0]
    assert f"ledger-{group.name}" in details[0], "the topic"
    assert isinstance(limit, int)
    assert limit <= offset
