"""1,000 stories of a quorum in trouble, each from its seed, with every invariant checked after every step.

A failing seed is printed with its story; `python -m tests.sim --seed N` tells it again.
"""

import logging
from collections.abc import Iterator
from functools import partial

import pytest
import structlog

from tests.sim.controllers import Controllers
from tests.sim.faults import run
from tests.sim.stories import run_all

CHUNKS, SEEDS = 20, 50


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Members that crash a thousand times have much to say."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_invariants_hold_in_every_story(chunk: int) -> None:
    run_all(run, range(chunk * SEEDS, (chunk + 1) * SEEDS))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_controllers_promises_hold_in_every_story(chunk: int) -> None:
    run_all(partial(run, workload=Controllers), range(chunk * SEEDS, (chunk + 1) * SEEDS))


def test_a_seed_is_the_same_story_every_time() -> None:
    assert run(3) == run(3)
