"""Common to the verbs that change a BrokerGroup: have the user confirm what cannot be undone, store the desired state,
and wait for the operator.

The plugin never does the operator's work. A change is one merge patch of spec or annotations, so it takes effect even
if this process or the operator restarts.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import TextIO

import msgspec

from rocketmq_kubectl.cluster import resources
from rocketmq_kubectl.cluster.kube import checked_name
from rocketmq_kubectl.cluster.resources import GroupStatus, Json
from rocketmq_kubectl.cluster.session import Session
from rocketmq_kubectl.errors import CommandRefusedError, NotConfirmedError, TimedOutError
from rocketmq_kubectl.run import Report
from rocketmq_resources.broker_group import BrokerGroup

POLL = 0.5
"""Seconds between two polls of the resource."""


def require_typed(expected: str, consequences: str, *, flag: str, stdin: TextIO | None = None) -> None:
    """Ask on standard error for `expected`, with the consequences; returns if the user typed it. `flag`: what scripts
    use instead.

    Raises:
        NotConfirmedError: the user typed something else, or there is no terminal.
    """
    source = sys.stdin if stdin is None else stdin
    if not source.isatty():
        raise NotConfirmedError(f"cannot ask for confirmation without a terminal: use {flag}; nothing was done")
    print(consequences, file=sys.stderr)
    print(f"Type {expected!r} to continue: ", end="", file=sys.stderr, flush=True)
    if source.readline(1000).strip() != expected:
        raise NotConfirmedError("not confirmed; nothing was done")


class Snapshot(msgspec.Struct, frozen=True):
    """A resource as it was read."""

    group: BrokerGroup
    status: GroupStatus

    @property
    def observed(self) -> bool:
        """Whether the status belongs to this spec."""
        return self.status.observed_generation >= self.group.metadata.generation


def snapshot(body: Json) -> Snapshot:
    """The parsed resource."""
    group = resources.broker_group(body)
    return Snapshot(group, resources.group_status(group))


async def patch(session: Session, name: str, change: Mapping[str, object]) -> Snapshot:
    """Merge `change` into the BrokerGroup; returns the result.

    Raises:
        PluginError: no such group, not allowed, or refused by a rule of the CRD.
    """
    await session.group_body(name)  # a better message than the patch's
    path = resources.resource("BrokerGroup", session.namespace, checked_name(name, "GROUP"))
    return snapshot(await session.kube.patch(path, change, {"fieldManager": "kubectl-rocketmq"}))


async def until(
    session: Session, name: str, done: Callable[[Snapshot], bool], *, seconds: float, what: str
) -> Snapshot:
    """Wait until `done`; the resource then.

    Raises:
        TimedOutError: not within `seconds`; with the phase of the group.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        now = snapshot(await session.group_body(name))
        if done(now):
            return now
        if loop.time() >= deadline:
            raise TimedOutError(f"{what} is stored, but took no effect within {seconds:g} s: {_why(now)}")
        await asyncio.sleep(min(POLL, max(0.01, deadline - loop.time())))


def _why(now: Snapshot) -> str:
    name = now.group.name
    if not now.observed:
        return (
            "the operator has not processed it: is it running, and what is in its log?"
            " (kubectl logs -l app.kubernetes.io/name=rocketmq-operator -n ITS-NAMESPACE)"
        )
    reason = f": {now.status.phase_reason}" if now.status.phase_reason else ""
    return f"phase {now.status.phase or 'unknown'}{reason}; see kubectl rocketmq status {name}"


def require_active(now: Snapshot, verb: str) -> None:
    """Refuse a change of a paused group, which the operator would ignore.

    Raises:
        CommandRefusedError: it is paused.
    """
    if now.group.spec.paused:
        name = now.group.name
        raise CommandRefusedError(
            f"{name} is paused, so {verb} would have no effect: kubectl rocketmq resume {name} first"
        )


def done(now: Snapshot, text: str, **more: object) -> Report:
    """The result of a change."""
    head = {"namespace": now.group.namespace, "name": now.group.name}
    return Report(f"{text}\n", head | more)
