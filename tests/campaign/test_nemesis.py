"""What the nemesis waits for."""

import asyncio
from typing import cast

import pytest

from tests.campaign.cluster import Cluster, Replica
from tests.campaign.load import Load
from tests.campaign.nemesis import Nemesis

FIRST, SECOND = (cast("Replica", object()) for _ in range(2))


class Group:
    """A cluster whose controllers name these masters, one after the other, and then the last one."""

    def __init__(self, *masters: Replica | None) -> None:
        self._masters = list(masters)

    async def master(self) -> Replica | None:
        return self._masters.pop(0) if len(self._masters) > 1 else self._masters[0]


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("masters", "found"), [((FIRST, None, FIRST, SECOND), SECOND), ((None,), None), ((FIRST,), None)]
)
async def test_the_successor_is_another_master(masters: tuple[Replica | None, ...], found: Replica | None) -> None:
    nemesis = Nemesis(cast("Cluster", Group(*masters)), cast("Load", None), iter(()), (0.0, 0.0))
    began = asyncio.get_running_loop().time()

    assert await nemesis.successor(FIRST, 5.0) is found
    assert (asyncio.get_running_loop().time() - began >= 5.0) is (found is None)
