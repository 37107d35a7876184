"""What the verbs that change a BrokerGroup have in common: write down what is wanted, wait until the operator did it.

The plugin never does the operator's work: a change is one merge patch of spec or annotations, so it holds through
restarts of everything, and is done also if this process ends right after.
"""

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from rocketmq_kubectl import resources
from rocketmq_kubectl.errors import RefusedError, TimedOutError
from rocketmq_kubectl.kube import checked_name
from rocketmq_kubectl.resources import GroupStatus, Json
from rocketmq_kubectl.run import Report
from rocketmq_kubectl.session import Session
from rocketmq_operator.domain.spec.broker_group import BrokerGroup

POLL = 0.5
"""Seconds between looks at the resource."""


class Seen(msgspec.Struct, frozen=True):
    """A resource as it was read."""

    group: BrokerGroup
    status: GroupStatus

    @property
    def observed(self) -> bool:
        """Whether the status speaks of this spec."""
        return self.status.observed_generation >= self.group.metadata.generation


def seen(body: Json) -> Seen:
    """The parsed resource."""
    group = resources.broker_group(body)
    return Seen(group, resources.group_status(group))


async def patch(session: Session, name: str, change: Mapping[str, object]) -> Seen:
    """Merge `change` into the BrokerGroup; as it is then.

    Raises:
        PluginError: no such group, not allowed, or refused by a rule of the CRD.
    """
    await session.group_body(name)  # a better message than the patch's
    path = resources.resource("BrokerGroup", session.namespace, checked_name(name, "GROUP"))
    return seen(await session.kube.patch(path, change, {"fieldManager": "kubectl-rocketmq"}))


async def until(session: Session, name: str, done: Callable[[Seen], bool], *, seconds: float, what: str) -> Seen:
    """Wait until `done`; the resource then.

    Raises:
        TimedOutError: not within `seconds`; it says what the operator says.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        now = seen(await session.group_body(name))
        if done(now):
            return now
        if loop.time() >= deadline:
            raise TimedOutError(f"{what} is written down, but not done after {seconds:g} s: {_why(now)}")
        await asyncio.sleep(min(POLL, max(0.01, deadline - loop.time())))


def _why(now: Seen) -> str:
    name = now.group.name
    if not now.observed:
        return (
            "the operator has not acted on it: does it run, and what does its log say?"
            " (kubectl logs -l app.kubernetes.io/name=rocketmq-operator -n ITS-NAMESPACE)"
        )
    reason = f": {now.status.phase_reason}" if now.status.phase_reason else ""
    return f"phase {now.status.phase or 'unknown'}{reason}; see kubectl rocketmq status {name}"


def require_active(now: Seen, verb: str) -> None:
    """The operator changes nothing about a paused group.

    Raises:
        RefusedError: it is paused.
    """
    if now.group.spec.paused:
        name = now.group.name
        raise RefusedError(f"{name} is paused, so {verb} would have no effect: kubectl rocketmq resume {name} first")


def done(now: Seen, text: str, **more: object) -> Report:
    """The result of a change."""
    head = {"namespace": now.group.namespace, "name": now.group.name}
    return Report(f"{text}\n", head | more)
