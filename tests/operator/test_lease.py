"""Leader election in virtual time: one acts, the others wait, and none acts on a Lease it could not renew."""

import asyncio
import contextlib
import copy
from typing import Any

import pytest

from rocketmq_operator.kubernetes.kube import ConflictError, Kube, NotFoundError, UnavailableError
from rocketmq_operator.kubernetes.lease import Leadership, LeaseLostError, LeaseSettings

pytestmark = pytest.mark.looptime
SECONDS = 15.0


class FakeKube(Kube):
    """One Lease, with the API server's optimistic locking; `down` while it does not answer."""

    def __init__(self) -> None:
        self.body: dict[str, Any] | None = None
        self.down = False
        self.hangs = False
        self._version = 0

    async def _there(self) -> dict[str, Any]:
        if self.hangs:
            await asyncio.sleep(3600)
        if self.down:
            raise UnavailableError("get leases", 0, "no route")
        if self.body is None:
            raise NotFoundError("get leases", 404, "not found")
        return copy.deepcopy(self.body)

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        return await self._there()

    async def create(self, made: Any) -> dict[str, Any]:
        with contextlib.suppress(NotFoundError):
            await self._there()
            raise ConflictError("create leases", 409, "it is there")
        return self._write(made)

    async def replace(self, made: Any) -> dict[str, Any]:
        old = await self._there()
        if made["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]:
            raise ConflictError("update leases", 409, "it has changed")
        return self._write(made)

    def _write(self, made: Any) -> dict[str, Any]:
        self._version += 1
        self.body = copy.deepcopy(made)
        assert self.body is not None
        self.body["metadata"] = {**made["metadata"], "resourceVersion": str(self._version)}
        return self.body

    @property
    def holder(self) -> str:
        assert self.body is not None
        return str(self.body["spec"]["holderIdentity"])


def candidate(kube: Kube, name: str) -> Leadership:
    loop = asyncio.get_running_loop()
    settings = LeaseSettings(namespace="ns", name="rocketmq-operator", holder=name, seconds=SECONDS)
    # Wall clocks disagree: only people read them.
    return Leadership(kube, settings, clock=loop.time, wall=lambda: 1e9 * len(name))


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_the_first_one_acts_and_the_second_waits() -> None:
    kube = FakeKube()
    first, second = candidate(kube, "a"), candidate(kube, "bb")
    await first.acquire()
    holding = asyncio.create_task(first.renew())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(second.acquire(), 600)
    assert first.leading
    assert not second.leading
    holding.cancel()


async def test_a_lease_given_back_is_taken_within_a_turn() -> None:
    kube = FakeKube()
    first, second = candidate(kube, "a"), candidate(kube, "bb")
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    await asyncio.sleep(20)
    await first.release()
    began = now()
    await waiting
    assert now() - began <= SECONDS / 7 + 1
    assert kube.holder == "bb"
    assert not first.leading


async def test_who_died_is_followed_after_its_duration_and_not_before() -> None:
    kube = FakeKube()
    first, second = candidate(kube, "a"), candidate(kube, "bb")
    await first.acquire()
    holding = asyncio.create_task(first.renew())
    waiting = asyncio.create_task(second.acquire())
    await asyncio.sleep(60)
    holding.cancel()
    died = now()
    await waiting
    assert SECONDS * 2 / 3 - 0.01 <= now() - died <= SECONDS * 8 / 7 + 0.01
    assert kube.body is not None
    assert kube.body["spec"]["leaseTransitions"] == 2


@pytest.mark.parametrize("fault", ["down", "hangs"])
async def test_a_holder_that_cannot_renew_stops_before_anybody_else_may_begin(fault: str) -> None:
    kube = FakeKube()
    first, second = candidate(kube, "a"), candidate(kube, "bb")
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    holding = asyncio.create_task(first.renew())
    await asyncio.sleep(61)
    partitioned = FakeKube()
    setattr(partitioned, fault, True)
    first._kube = partitioned
    with pytest.raises(LeaseLostError):
        await holding
    stopped = now()
    assert not first.leading
    await waiting
    assert now() > stopped


async def test_an_api_server_that_is_away_for_a_moment_costs_nothing() -> None:
    kube = FakeKube()
    first = candidate(kube, "a")
    await first.acquire()
    holding = asyncio.create_task(first.renew())
    await asyncio.sleep(31)
    kube.down = True
    await asyncio.sleep(SECONDS / 2)
    kube.down = False
    await asyncio.sleep(60)
    assert first.leading
    assert not holding.done()
    holding.cancel()


async def test_who_waits_survives_an_api_server_that_is_away() -> None:
    kube = FakeKube()
    kube.down = True
    waiting = asyncio.create_task(candidate(kube, "a").acquire())
    await asyncio.sleep(300)
    kube.down = False
    await waiting
    assert kube.holder == "a"


async def test_a_lease_that_another_operator_took_is_lost() -> None:
    kube = FakeKube()
    first = candidate(kube, "a")
    await first.acquire()
    holding = asyncio.create_task(first.renew())
    await asyncio.sleep(1)
    assert kube.body is not None
    kube._write({**kube.body, "spec": {**kube.body["spec"], "holderIdentity": "somebody"}})
    with pytest.raises(LeaseLostError, match="another operator"):
        await holding


async def test_a_container_that_restarts_in_its_pod_continues_at_once() -> None:
    kube = FakeKube()
    await candidate(kube, "a").acquire()
    began = now()
    again = candidate(kube, "a")
    await again.acquire()
    assert now() == began


async def test_two_that_start_together_do_not_both_lead() -> None:
    kube = FakeKube()
    candidates = [candidate(kube, name) for name in ("a", "bb", "ccc")]
    tasks = [asyncio.create_task(one.acquire()) for one in candidates]
    await asyncio.sleep(5)
    assert sum(one.leading for one in candidates) == 1
    for task in tasks:
        task.cancel()
