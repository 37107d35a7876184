"""`make bench`: every measurement several times, the two engines in turn; medians and ratios to build/bench.

Exit code 1 where a figure of ours misses its target; the table says which.
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import uvloop

from benchmarks import controller, engines, operator, replicas, report, stores, verification
from benchmarks.controller import Figures

Measure = Callable[[engines.Quorum], Coroutine[Any, Any, Figures | Sequence[Figures]]]

MEASUREMENTS: dict[str, Measure] = {
    "requests": controller.requests,
    "masters_lost": controller.masters_lost,
    "leader_killed": controller.leader_killed,
    "leader_hung": controller.leader_hung,
    "restart": controller.restart,
    "sends_to_all": replicas.sends_to_all,
    "sends_to_master": replicas.sends_to_master,
    "fetch": replicas.fetch,
    "master_lost": replicas.master_lost,
    "acting_killed": replicas.acting_killed,
    "acting_hung": replicas.acting_hung,
    "recovery": stores.recovery,
    "pulls": stores.pulls,
    "operator": operator.reconcile,
    "verification": verification.verification,
}
OURS_ONLY = {"restart", "operator", "verification"}
"""Java would need minutes to make 100,000 events, and has no operator and nothing that compares logs."""
ONCE = {"restart", "recovery", "operator", "verification"}
"""Takes long to prepare, or has rounds of its own."""


def main() -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make bench", description="Ours and the Java controller side by side.")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each measurement (default 3)")
    parser.add_argument("--only", nargs="*", choices=sorted(MEASUREMENTS), help="only these measurements")
    parser.add_argument("--without-java", action="store_true", help="measure ours alone")
    parser.add_argument(
        "--output", type=Path, default=Path("build/bench"), help="folder of results.json and results.md"
    )
    options = parser.parse_args()
    # Start-up is measured as installed, that is, compiled: what we start may keep its bytecode.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    kept: dict[str, dict[str, list[float]]] = {"ours": {}, "java": {}}
    for name in options.only or MEASUREMENTS:
        for number in range(1 if name in ONCE else options.rounds):
            for engine in ("ours",) if options.without_java or name in OURS_ONLY else ("ours", "java"):
                began = time.monotonic()
                for figures in _measure(name, engine, with_java_client=not options.without_java):
                    taken = time.monotonic() - began
                    print(f"{name} {number + 1} {engine} ({taken:.0f} s): {report.line(figures)}", flush=True)
                    for figure, value in figures.items():
                        kept[engine].setdefault(figure, []).append(value)
    results = {
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "kernel": platform.release()},
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "rounds": options.rounds,
        "figures": kept,
    }
    table, missed = report.table(kept)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.output / "results.md").write_text(table)
    print("\n" + table)
    for figure in missed:
        print(f"missed: {figure}")
    return 1 if missed else 0


def _measure(name: str, engine: str, *, with_java_client: bool) -> Sequence[Figures]:
    folder = Path(tempfile.mkdtemp(prefix=f"rocketmq-ha-bench-{engine}-"))
    start = engines.ours if engine == "ours" else engines.java
    started = start(folder, with_java_client=with_java_client)
    try:
        with started as quorum, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            figures = runner.run(MEASUREMENTS[name](quorum))
            return [figures] if isinstance(figures, dict) else figures
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
