"""Tell the story of one seed, or run many: `python -m tests.sim --seed 7`, `python -m tests.sim --seed 0 --count
1000`."""

import argparse
import logging
import sys
import time

import structlog

from tests.sim.controllers import Controllers
from tests.sim.faults import STORM_SECONDS, run
from tests.sim.groups import STORM_SECONDS as GROUP_SECONDS
from tests.sim.groups import run as run_group


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds; the story is told for one only")
    parser.add_argument("--seconds", type=float, help="virtual seconds of faults")
    parser.add_argument("--groups", action="store_true", help="a broker group with its controllers, not a quorum")
    parser.add_argument("--controllers", action="store_true", help="replicate the controller, not numbers")
    options = parser.parse_args()
    workload = Controllers if options.controllers else None
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    started = time.perf_counter()
    for seed in range(options.seed, options.seed + options.count):
        story = options.count == 1
        try:
            if options.groups:
                outcome: object = run_group(seed, story=story, seconds=options.seconds or GROUP_SECONDS)
            else:
                outcome = run(seed, workload, story=story, seconds=options.seconds or STORM_SECONDS)
        except Exception as error:
            if not story:
                print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
                continue
            raise
        if story:
            print(outcome)
    print(f"{options.count} seeds in {time.perf_counter() - started:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
