"""`epochs GROUP`: the epoch file of each replica from its sidecar, and whether they agree."""

import asyncio
from collections.abc import Mapping, Sequence

from rocketmq_api.replica_view import EpochRange, ReplicaView
from rocketmq_kubectl import output
from rocketmq_kubectl.cluster.replica_queries import query_replicas
from rocketmq_kubectl.cluster.session import Session
from rocketmq_kubectl.errors import PluginError, UnreachableError
from rocketmq_kubectl.run import Report

HEADERS = ("POD", "BROKER-ID", "ROLE", "EPOCH", "START-OFFSET", "END-OFFSET", "SIZE")


async def epochs(session: Session, name: str) -> Report:
    """All replicas whose sidecar answers; the others are reported as problems."""
    body, answers = await asyncio.gather(session.group_body(name), query_replicas(session, name))
    del body  # the group exists
    if not answers:
        raise UnreachableError(f"no pod of {name} is running: see kubectl rocketmq status {name}")

    views = {pod: answer for pod, answer in answers.items() if isinstance(answer, ReplicaView)}
    problems = tuple(answer for answer in answers.values() if isinstance(answer, PluginError))
    found = differences({pod: view.epochs for pod, view in views.items()})
    text = ""
    if views:
        verdict = (
            "The logs of these replicas agree." if not found else "\n".join(f"DIFFERENT: {line}" for line in found)
        )
        text = f"{_table(views)}\n{verdict}\n"
    return Report(text, _document(session, name, views, found), problems)


def differences(logs: Mapping[str, Sequence[EpochRange]]) -> list[str]:
    """Epochs that two replicas have with different start or end offsets, ordered by epoch.

    The start of a replica's oldest epoch (its oldest file) and the end of its newest one (still growing) are not
    compared.
    """
    found = []
    numbers = sorted({line.epoch for log in logs.values() for line in log})
    for number in numbers:
        starts: dict[int, list[str]] = {}
        ends: dict[int, list[str]] = {}
        for pod, log in logs.items():
            for at, line in enumerate(log):
                if line.epoch == number and at > 0:
                    starts.setdefault(line.start_offset, []).append(pod)
                if line.epoch == number and at < len(log) - 1:
                    ends.setdefault(line.end_offset, []).append(pod)
        found += [
            f"epoch {number} {what} "
            + ", ".join(f"at {offset} on {' '.join(on)}" for offset, on in sorted(which.items()))
            for what, which in (("begins", starts), ("ends", ends))
            if len(which) > 1
        ]
    return found


def _table(views: Mapping[str, ReplicaView]) -> str:
    rows: list[tuple[object, ...]] = [
        (
            pod, view.broker_id, view.role.value, line.epoch, line.start_offset, line.end_offset,
            output.size(line.end_offset - line.start_offset),
        )
        for pod, view in views.items()
        for line in view.epochs
    ]  # fmt: skip
    rows += [(pod, view.broker_id, view.role.value, *(None,) * 4) for pod, view in views.items() if not view.epochs]
    return output.table(HEADERS, sorted(rows, key=lambda row: str(row[0])))


def _document(session: Session, name: str, views: Mapping[str, ReplicaView], found: Sequence[str]) -> output.Document:
    return {
        "namespace": session.namespace,
        "name": name,
        "aligned": not found,
        "differences": list(found),
        "replicas": [
            {
                "pod": pod,
                "brokerId": view.broker_id,
                "role": view.role.value,
                "minOffset": view.min_offset,
                "maxOffset": view.max_offset,
                "confirmOffset": view.confirm_offset,
                "epochs": [
                    {"epoch": line.epoch, "startOffset": line.start_offset, "endOffset": line.end_offset}
                    for line in view.epochs
                ],
            }
            for pod, view in views.items()
        ],
    }
