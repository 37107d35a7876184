"""Leader election: one operator acts, the others wait. A Lease of the coordination API, as Kubernetes' own components
use it.

Whoever holds it renews it; who finds it unrenewed for its whole duration, measured by its own clock from when it saw it
change, takes it. A holder that could not renew in time stops acting before anybody else may begin. Used by `main`.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog

from rocketmq_operator.domain.spec.common import Json
from rocketmq_operator.kube import ConflictError, Kube, KubeError, NotFoundError

RENEW: Final = 1 / 3
"""Of the duration, between two renewals."""
GIVE_UP: Final = 2 / 3
"""Of the duration without a renewal: we stop, though nobody may have taken it yet."""
RETRY: Final = 1 / 7
"""Of the duration, between two attempts of who waits, or whose renewal failed."""

log = structlog.get_logger(__name__)
Sleep = Callable[[float], Awaitable[None]]


class LeaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which Lease, by whom."""

    namespace: str
    name: str
    holder: str
    seconds: float


class LeaseLostError(Exception):
    """Somebody else may act now."""


class Leadership:
    """One candidate."""

    def __init__(
        self,
        kube: Kube,
        settings: LeaseSettings,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`clock`: monotonic seconds; `wall`: seconds since 1970, only for people who read the Lease."""
        self._kube = kube
        self._settings = settings
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._seen: tuple[object, float] = (None, clock())
        self.leading = False

    async def acquire(self, *, retry: float | None = None) -> None:
        """Wait until it is ours, with an attempt each `retry` seconds (None: as the duration says)."""
        told = ""
        while True:
            try:
                if await self._try():
                    self.leading = True
                    log.info("leading", lease=self._settings.name, holder=self._settings.holder)
                    return
                trouble = ""
            except KubeError as error:
                trouble = str(error)
            if trouble != told:
                told = trouble
                if trouble:
                    log.warning("the Lease cannot be had", lease=self._settings.name, error=trouble)
            await self._sleep(RETRY * self._settings.seconds if retry is None else retry)

    async def hold(self) -> None:
        """Renew it until it is lost.

        Raises:
            LeaseLostError: stop acting at once.
        """
        renewed = self._clock()
        while True:
            await self._sleep(RENEW * self._settings.seconds)
            while True:
                asked = self._clock()
                try:
                    async with asyncio.timeout(max(0.5, RENEW * self._settings.seconds)):
                        kept = await self._try()
                except (KubeError, TimeoutError) as error:
                    if self._clock() - renewed >= GIVE_UP * self._settings.seconds:
                        self.leading = False
                        raise LeaseLostError(f"not renewed in time: {str(error) or 'no answer'}") from error
                    await self._sleep(RETRY * self._settings.seconds)
                    continue
                if not kept:
                    self.leading = False
                    raise LeaseLostError("somebody else holds it")
                renewed = asked
                break

    async def release(self) -> None:
        """Let the next one begin at once."""
        if not self.leading:
            return
        self.leading = False
        with contextlib.suppress(KubeError):
            body = await self._kube.get("Lease", self._settings.namespace, self._settings.name)
            spec = _spec(body)
            if spec.get("holderIdentity") == self._settings.holder:
                await self._kube.replace({**body, "spec": {**spec, "holderIdentity": "", "leaseDurationSeconds": 1}})
                log.info("released", lease=self._settings.name)

    async def _try(self) -> bool:
        """Whether it is ours after this."""
        settings = self._settings
        try:
            body = await self._kube.get("Lease", settings.namespace, settings.name)
        except NotFoundError:
            try:
                await self._kube.create(self._made({}, {}))
            except ConflictError:
                return False
            return True
        spec, now = _spec(body), self._clock()
        holder = spec.get("holderIdentity")
        metadata = body.get("metadata")
        assert isinstance(metadata, Mapping), "the API server sends metadata"
        if metadata.get("resourceVersion") != self._seen[0]:
            self._seen = (metadata.get("resourceVersion"), now)  # every renewal is a change, whatever clocks say
        duration = spec.get("leaseDurationSeconds")
        patience = max(float(duration) if isinstance(duration, int) else 0.0, 1.0)
        if holder not in (None, "", settings.holder) and now - self._seen[1] < patience:
            return False
        try:
            await self._kube.replace(self._made(metadata, spec))
        except ConflictError:
            return False
        return True

    def _made(self, metadata: Mapping[str, object], spec: Mapping[str, object]) -> Json:
        settings = self._settings
        now = datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ours = spec.get("holderIdentity") == settings.holder
        transitions = spec.get("leaseTransitions")
        count = transitions if isinstance(transitions, int) else 0
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {**metadata, "name": settings.name, "namespace": settings.namespace},
            "spec": {
                "holderIdentity": settings.holder,
                "leaseDurationSeconds": max(1, round(settings.seconds)),
                "acquireTime": spec.get("acquireTime") if ours else now,
                "renewTime": now,
                "leaseTransitions": count if ours else count + 1,
            },
        }


def _spec(body: Json) -> Mapping[str, object]:
    spec = body.get("spec")
    return spec if isinstance(spec, Mapping) else {}
