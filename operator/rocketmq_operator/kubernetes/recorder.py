"""Records decisions as Kubernetes Events and log lines, each once.

Separate tasks send the Events, so that a slow API server delays no decision. When too many wait, new Events are only
logged. Used by `reconciler` and `execute`.
"""

import asyncio
import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import structlog

from rocketmq_operator.domain.actions import Event
from rocketmq_operator.kubernetes.kube import Kube, KubeError, identity
from rocketmq_resources.decoding import Json
from rocketmq_runtime import background

MOST_WAITING: Final = 1000
SENDERS: Final = 2
REPEAT_SECONDS: Final = 600.0
"""The same Event about the same resource is recorded again only after this time."""
REMEMBERED: Final = 5000
MAX_MESSAGE: Final = 1000
"""The API server accepts 1024 characters."""
COMPONENT: Final = "rocketmq-operator"

log = structlog.get_logger(__name__)


class EventRecorder:
    """Call `start` before `record_event`."""

    def __init__(
        self, kube: Kube, instance: str, *, wall: Callable[[], float], counted: Callable[[str, str], None]
    ) -> None:
        """`wall`: seconds since 1970; `counted(kind, reason)` is called for each Event."""
        self._count = counted
        self._kube = kube
        self._instance = instance
        self._wall = wall
        self._waiting: asyncio.Queue[Json] = asyncio.Queue(MOST_WAITING)
        self._recorded: OrderedDict[bytes, float] = OrderedDict()
        self._number = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [background.start(self._run(), f"events {number}") for number in range(SENDERS)]

    async def stop(self) -> None:
        """Send waiting Events for up to a second, then stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._waiting.join()
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def record_event(self, about: Json, event: Event) -> None:
        """`about`: the resource."""
        now = self._wall()
        kind, namespace, name = identity(about)
        digest = hashlib.blake2b(repr((kind, namespace, name, event)).encode(), digest_size=16).digest()
        if now - self._recorded.get(digest, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return
        self._recorded[digest] = now
        self._recorded.move_to_end(digest)
        while len(self._recorded) > REMEMBERED:
            self._recorded.popitem(last=False)
        (log.warning if event.warning else log.info)(
            "event", kind=kind, namespace=namespace, name=name, reason=event.reason, note=event.message
        )
        self._count(kind, event.reason)
        with contextlib.suppress(asyncio.QueueFull):
            self._waiting.put_nowait(self._event(about, event, now))

    def _event(self, about: Json, event: Event, now: float) -> Json:
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
            "reason": event.reason,
            "message": event.message[:MAX_MESSAGE],
            "type": "Warning" if event.warning else "Normal",
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._instance,
            "action": event.reason,
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
