"""1,000 stories of a broker group in trouble, each from its seed, with the invariants checked after every turn of any
of its processes; and proof that the checks notice what they are for.

A failing seed is printed with its story; `python -m tests.sim --groups --seed N` tells it again.
"""

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rocketmq_broker.domain.role import ReplicaRole
from rocketmq_sidecar.domain import ha_master, ha_slave
from rocketmq_sidecar.domain.ha_master import Mastership
from rocketmq_sidecar.domain.holds import Holds
from rocketmq_sidecar.domain.level import LevelWatch
from rocketmq_sidecar.epoch_store import EpochStore
from rocketmq_sidecar.log_mark import LogMark
from rocketmq_sidecar.meta_files import IdentityFiles, Kept
from tests.sim.checks import Violation
from tests.sim.groups import run
from tests.sim.stories import run_all

CHUNKS, SEEDS = 40, 25
GENTLE_CHUNKS = 8
PATIENCE = 60
"""Seeds within which a defect has to be found."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_promises_hold_in_every_story(chunk: int) -> None:
    run_all(run, range(chunk * SEEDS, (chunk + 1) * SEEDS))
    gc.collect()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("chunk", range(GENTLE_CHUNKS))
def test_hand_overs_and_orderly_ends_lose_nothing_whatever_the_durability(chunk: int) -> None:
    run_all(partial(run, gentle=True), range(chunk * SEEDS, (chunk + 1) * SEEDS))
    gc.collect()


def test_a_seed_is_the_same_story_every_time() -> None:
    assert run(3) == run(3)


def _forgetful(store: EpochStore, epochs: Any) -> None:
    store.epochs = epochs


def _run_all(seeds: int, *, gentle: bool = False) -> None:
    for seed in range(seeds):
        run(seed, gentle=gentle)


def _always_level(watch: LevelWatch, master: Mastership) -> tuple[frozenset[int], bool] | None:
    now = frozenset(master.acks), True
    before, watch._told = watch._told, now
    return None if now == before else now


DEFECTS: dict[str, tuple[Any, str, Callable[..., Any], tuple[str, ...]]] = {
    "acknowledged before anybody else has it": (
        ha_master,
        "acked_offset",
        lambda _rule, _set, own, _acks: own,
        ("AckedSurvives",),
    ),
    "answered before it is acknowledged": (ReplicaRole, "releasable", lambda *_: 2**62, ("AckedSurvives",)),
    "logs that part are not cut": (
        ha_slave,
        "consistent_point",
        lambda _epochs, _start, end, master: min(end, master.max_offset),
        ("AckedSurvives", "PrefixAligned", "QueuesComplete", "Alive", "WholeRecords"),
    ),
    "anybody connected is in sync": (Mastership, "qualifies", lambda *_: True, ("AckedSurvives",)),
    "epochs are not written": (
        EpochStore,
        "save_now",
        _forgetful,
        ("AckedSurvives", "PrefixAligned", "QueuesComplete", "Alive", "WholeRecords"),
    ),
    "an emptied log is not noticed": (LogMark, "missing", lambda *_, **__: None, ("AckedSurvives",)),
    "the identity is not read": (IdentityFiles, "load", lambda _: Kept(None, None), ("IdentityForever",)),
}


GENTLE_DEFECTS: dict[str, tuple[Any, str, Callable[..., Any], tuple[str, ...]]] = {
    "who is elected need not be level": (LevelWatch, "look", _always_level, ("AckedSurvives",)),
    "the broker is not told to refuse sends": (Holds, "next", lambda _, *, handing_over: None, ("Fenced",)),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("defect", GENTLE_DEFECTS)
def test_a_defect_is_found_without_anything_that_kills(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, name, instead, broken = GENTLE_DEFECTS[defect]
    monkeypatch.setattr(place, name, instead)
    with pytest.raises(Violation) as found:
        _run_all(PATIENCE, gentle=True)
    assert str(found.value).startswith(broken)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, name, instead, broken = DEFECTS[defect]
    monkeypatch.setattr(place, name, instead)
    with pytest.raises(Violation) as found:
        _run_all(PATIENCE)
    assert str(found.value).startswith(broken)
