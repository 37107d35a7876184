"""Tell the story of one seed, or run many: `python -m tests.sim --seed 7`, `python -m tests.sim --seed 0 --count
1000`. Exit code 1 if a promise was broken. `make sim` runs all kinds from a seed of the day."""

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final

import structlog

from tests.sim.groups import world as groups
from tests.sim.quorum.controllers import Controllers
from tests.sim.quorum.faults import MEMBER_FAULTS
from tests.sim.quorum.run import STORM_SECONDS, run

Run = Callable[..., object]

KINDS: Final[dict[str, tuple[Run, float]]] = {
    "quorum": (run, STORM_SECONDS),
    "controllers": (partial(run, workload=Controllers), STORM_SECONDS),
    "members": (partial(run, only=MEMBER_FAULTS), STORM_SECONDS),
    "groups": (groups.run, groups.STORM_SECONDS),
    "outages": (partial(groups.run, outages=True), 2 * groups.STORM_SECONDS),
}
"""What is simulated: Raft with numbers; with the controller; with members that come and go; brokers and controllers;
the same without any controller for much of the time."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds of each kind; one tells its story")
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=["quorum"], help="what to simulate")
    parser.add_argument("--seconds", type=float, help="virtual seconds of faults")
    parser.add_argument("--only", default="", help="kinds of fault to choose from, with commas (quorum, controllers)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    only = [kind for kind in options.only.split(",") if kind]
    if options.count == 1:
        for kind in options.kind:
            print(_run(kind, options.seed, seconds=options.seconds, only=only, story=True))
        return 0
    started, broken = time.perf_counter(), 0
    tasks = [(kind, seed) for kind in options.kind for seed in range(options.seed, options.seed + options.count)]
    with ProcessPoolExecutor(options.jobs) as pool:
        problem_of = partial(_problem, seconds=options.seconds, only=only)
        for (kind, seed), problem in zip(tasks, pool.map(problem_of, *zip(*tasks, strict=True)), strict=True):
            if problem is not None:
                broken += 1
                print(f"{problem}: python -m tests.sim --kind {kind} --seed {seed}", flush=True)
    what = f"{options.count} seeds from {options.seed} of {', '.join(options.kind)}"
    print(f"{what} in {time.perf_counter() - started:.0f} s: {broken} broken")
    return 1 if broken else 0


def _run(kind: str, seed: int, *, seconds: float | None, only: list[str], story: bool) -> object:
    run, usual = KINDS[kind]
    return run(seed, story=story, seconds=seconds or usual, **({"only": only} if only else {}))


def _problem(kind: str, seed: int, *, seconds: float | None, only: list[str]) -> str | None:
    try:
        _run(kind, seed, seconds=seconds, only=only, story=False)
    except Exception as error:  # noqa: BLE001 - each of them is what the run is for
        return f"{kind}: {type(error).__name__}: {error}"
    return None


if __name__ == "__main__":
    sys.exit(main())
