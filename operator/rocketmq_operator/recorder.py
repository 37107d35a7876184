"""Kubernetes Events, and the same as log lines: every decision that matters is told once.

Sent by tasks of their own, so that a slow API server delays no decision; when too many wait the newest are dropped,
the log has them. Used by `reconciler` and `execute`.
"""

import asyncio
import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import structlog

from rocketmq_operator.domain.actions import Notice
from rocketmq_operator.domain.spec.common import Json
from rocketmq_operator.kube import Kube, KubeError, identity

MOST_WAITING: Final = 1000
SENDERS: Final = 2
REPEAT_SECONDS: Final = 600.0
"""The same notice about the same resource is told again only after so long."""
REMEMBERED: Final = 5000
MAX_MESSAGE: Final = 1000
"""The API server takes 1024 characters."""
COMPONENT: Final = "rocketmq-operator"

log = structlog.get_logger(__name__)


class Recorder:
    """Of one process; `start` it before `tell`."""

    def __init__(
        self, kube: Kube, instance: str, *, wall: Callable[[], float], told: Callable[[str, str], None]
    ) -> None:
        """`wall`: seconds since 1970; `told(kind, reason)` is called for each Event."""
        self._count = told
        self._kube = kube
        self._instance = instance
        self._wall = wall
        self._waiting: asyncio.Queue[Json] = asyncio.Queue(MOST_WAITING)
        self._told: OrderedDict[bytes, float] = OrderedDict()
        self._number = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._run(), name=f"events {number}") for number in range(SENDERS)]

    async def stop(self) -> None:
        """What waits is sent, for a second."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._waiting.join()
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def tell(self, about: Json, notice: Notice) -> None:
        """`about`: the resource."""
        now = self._wall()
        kind, namespace, name = identity(about)
        told = hashlib.blake2b(repr((kind, namespace, name, notice)).encode(), digest_size=16).digest()
        if now - self._told.get(told, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return
        self._told[told] = now
        self._told.move_to_end(told)
        while len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        (log.warning if notice.warning else log.info)(
            "event", kind=kind, namespace=namespace, name=name, reason=notice.reason, note=notice.message
        )
        self._count(kind, notice.reason)
        with contextlib.suppress(asyncio.QueueFull):
            self._waiting.put_nowait(self._event(about, notice, now))

    def _event(self, about: Json, notice: Notice, now: float) -> Json:
        kind, namespace, name = identity(about)
        metadata = about["metadata"]
        assert isinstance(metadata, dict), "resources have metadata"
        self._number += 1
        when = datetime.fromtimestamp(now, UTC)
        second = when.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.{int(now * 1000):x}{self._number:04x}", "namespace": namespace},
            "involvedObject": {
                "apiVersion": about.get("apiVersion"),
                "kind": kind,
                "namespace": namespace,
                "name": name,
                "uid": metadata.get("uid"),
                "resourceVersion": metadata.get("resourceVersion"),
            },
            "reason": notice.reason,
            "message": notice.message[:MAX_MESSAGE],
            "type": "Warning" if notice.warning else "Normal",
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._instance,
            "action": notice.reason,
            "eventTime": when.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "firstTimestamp": second,
            "lastTimestamp": second,
            "count": 1,
        }

    async def _run(self) -> None:
        while True:
            made = await self._waiting.get()
            try:
                await self._kube.create(made)
            except KubeError as error:
                log.debug("event not sent", error=str(error))
            finally:
                self._waiting.task_done()
