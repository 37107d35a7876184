"""Leader election: one operator acts, the others wait. A Lease of the coordination API, as Kubernetes' own components
use it.

The holder renews it. A candidate takes it when it saw no renewal for the whole duration, by its own clock. A holder
that could not renew in time stops before a candidate may begin. Used by `main`.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog

from rocketmq_operator.kubernetes.kube import ConflictError, Kube, KubeError, NotFoundError
from rocketmq_resources.decoding import Json

RENEW: Final = 1 / 3
"""Time between two renewals, as a part of the duration."""
GIVE_UP: Final = 2 / 3
"""The holder stops after this part of the duration without a renewal, before a candidate may take the Lease."""
RETRY: Final = 1 / 7
"""Time between two attempts to acquire, or to renew after a failure, as a part of the duration."""

log = structlog.get_logger(__name__)
Sleep = Callable[[float], Awaitable[None]]


class LeaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The Lease and its candidate."""

    namespace: str
    name: str
    holder: str
    seconds: float


class LeaseLostError(Exception):
    """Another operator may act now."""


class Leadership:
    """One candidate for the Lease."""

    def __init__(
        self,
        kube: Kube,
        settings: LeaseSettings,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`clock`: monotonic seconds; `wall`: seconds since 1970, only shown in the Lease."""
        self._kube = kube
        self._settings = settings
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._seen: tuple[object, float] = (None, clock())
        self.leading = False

    async def acquire(self, *, retry: float | None = None) -> None:
        """Wait until this candidate holds the Lease; try every `retry` seconds (None: RETRY of the duration)."""
        logged = ""
        while True:
            try:
                if await self._try_acquire_or_renew():
                    self.leading = True
                    log.info("leading", lease=self._settings.name, holder=self._settings.holder)
                    return
                trouble = ""
            except KubeError as error:
                trouble = str(error)
            if trouble != logged:
                logged = trouble
                if trouble:
                    log.warning("cannot acquire the Lease", lease=self._settings.name, error=trouble)
            await self._sleep(RETRY * self._settings.seconds if retry is None else retry)

    async def renew(self) -> None:
        """Renew the Lease until it is lost.

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
                        kept = await self._try_acquire_or_renew()
                except (KubeError, TimeoutError) as error:
                    if self._clock() - renewed >= GIVE_UP * self._settings.seconds:
                        self.leading = False
                        raise LeaseLostError(f"not renewed in time: {str(error) or 'no answer'}") from error
                    await self._sleep(RETRY * self._settings.seconds)
                    continue
                if not kept:
                    self.leading = False
                    raise LeaseLostError("another operator holds it")
                renewed = asked
                break

    async def release(self) -> None:
        """Give the Lease up, so that another operator can acquire it at once."""
        if not self.leading:
            return
        self.leading = False
        with contextlib.suppress(KubeError):
            body = await self._kube.get("Lease", self._settings.namespace, self._settings.name)
            spec = _spec(body)
            if spec.get("holderIdentity") == self._settings.holder:
                await self._kube.replace({**body, "spec": {**spec, "holderIdentity": "", "leaseDurationSeconds": 1}})
                log.info("released the Lease", lease=self._settings.name)

    async def _try_acquire_or_renew(self) -> bool:
        """Whether this candidate holds the Lease now."""
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
