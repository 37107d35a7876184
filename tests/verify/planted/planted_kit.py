"""What the tests with planted damage share: a group in memory, and what a run found of it."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, settings

from rocketmq_verify.domain.findings import Finding, Kind
from tests.verify.planted.faults import Group, Run

deterministic = settings(
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def only(run: Run) -> Finding:
    assert len(run.findings) == 1, run.findings
    return run.findings[0]


def kinds(run: Run) -> list[Kind]:
    return [finding.kind for finding in run.findings]


def group(replicas: int = 3, *, strict: bool = True, messages: int = 60, length: int = 700) -> Group:
    return Group(replicas, strict=strict).fill(messages, length)


def part(made: Group, index: int, where: str, seed: int) -> int:
    message = made.messages[index % len(made.messages)]
    ranges = {
        "size": (message.offset, message.offset + 4),
        "magic": (message.offset + 4, message.offset + 8),
        "crc": (message.offset + 8, message.offset + 12),
        "head": (message.offset + 12, message.offset + 28),
        "place": (message.offset + 28, message.offset + 36),
        "times": (message.offset + 36, message.offset + 84),
        "lengths": (message.offset + 84, message.offset + 88),
        "body": (message.body_start, message.body_start + message.body_length),
        "tail": (message.body_start + message.body_length, message.end),
    }
    return Random(seed).randrange(*ranges[where])
