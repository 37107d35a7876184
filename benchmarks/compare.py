"""`make bench-compare BASE=commit`: this checkout and another commit measured in turn, in one run on one machine.

Both run with the packages that are installed here; each with its own benchmarks. Only ours, Java is left out. Exit
code 1 where a median is worse than the other commit's by more than the tolerance.

Whole rounds tell little: from one round to the next a figure may change by a half on a machine that is not alone. So
where it is possible both commits run at the same time and are under load in turns of half a second, and the median of
the turns' ratios is what counts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks import report
from benchmarks.targets import IN_FLIGHT

Figures = dict[str, list[float]]
"""Figure -> one value a round, or a turn."""

HERE = Path(__file__).resolve().parent.parent
IN_TURNS: Final[Mapping[str, Sequence[str]]] = {
    "requests": ("alter_per_second", "heartbeat_per_second", "replica_info_per_second"),
    "sends_to_all": [f"sends_all_{in_flight}" for in_flight in IN_FLIGHT],
    "sends_to_master": [f"sends_master_{in_flight}" for in_flight in IN_FLIGHT],
}
"""Measurements that both commits run at the same time, and their figures in order. The median latency of
alterSyncStateSet is the reciprocal of its rate: each group has one request in flight."""
TURN_SECONDS: Final = 0.6
WARM_UP_SECONDS: Final = 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make bench-compare", description="This checkout against another commit.")
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each measurement (default 5)")
    parser.add_argument(
        "--turns", type=int, default=50, help="turns of each figure, where turns are possible (default 50)"
    )
    parser.add_argument(
        "--only", nargs="+", default=["requests", "sends_to_all", "sends_to_master"], help="measurements of make bench"
    )
    parser.add_argument("--tolerance", type=float, default=5.0, help="per cent that a median may be worse by")
    parser.add_argument("--output", type=Path, default=Path("build/bench-compare"), help="folder of results.md")
    options = parser.parse_args(arguments)
    kept: tuple[Figures, Figures] = {}, {}
    with tempfile.TemporaryDirectory(prefix="rocketmq-ha-base-") as folder:
        base = Path(folder) / "base"
        _git("worktree", "add", "--detach", str(base), options.base)
        try:
            for name in options.only:
                if name in IN_TURNS:
                    _take_turns((base, HERE), name, options.turns, kept)
                else:
                    _measure_rounds((base, HERE), name, options.rounds, kept)
        finally:
            _git("worktree", "remove", "--force", str(base))
    table, worse = report.comparison(*kept, options.tolerance)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "results.md").write_text(table)
    print("\n" + table)
    for figure in worse:
        print(f"worse by more than {options.tolerance:g} %: {figure}")
    return 1 if worse else 0


# In rounds


def _measure_rounds(checkouts: tuple[Path, Path], name: str, rounds: int, kept: tuple[Figures, Figures]) -> None:
    pairs = list(zip(checkouts, kept, strict=True))
    for number in range(rounds):
        # the first one of a round may find a warmer or a colder machine
        for checkout, figures in pairs if number % 2 else reversed(pairs):
            _measure(checkout, name, figures)


def _measure(checkout: Path, name: str, kept: Figures) -> None:
    with tempfile.TemporaryDirectory() as output:
        command = [sys.executable, "-m", "benchmarks", "--without-java", "--rounds", "1"]
        # it ends with 1 where a promise is missed, which is not asked here
        subprocess.run(
            [*command, "--only", name, "--output", output], cwd=checkout, env=_environment(checkout), check=False
        )
        results_file = Path(output) / "results.json"
        if not results_file.exists():
            raise SystemExit(f"{name} failed in {checkout}: no comparison")
        results = json.loads(results_file.read_text())
    for figure, values in results["figures"]["ours"].items():
        kept.setdefault(figure, []).extend(values)


# In turns


class _Side:
    """What runs of one commit, and its load."""

    def __init__(self, checkout: Path, name: str, output: Path) -> None:
        self._process = subprocess.Popen(
            # -P: the file's folder is not on the path, or its modules would hide those of Python
            [sys.executable, "-P", str(HERE / "benchmarks" / "turn_taker.py"), name, str(output)],
            cwd=checkout,
            env=_environment(checkout),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_ready(self) -> None:
        """For the next figure. Raises SystemExit if it ends instead."""
        self._read("READY")

    def take_turn(self, seconds: float) -> float:
        """What it did a second."""
        self._write(str(seconds))
        return float(self._read("GOT")[1])

    def end_figure(self) -> None:
        """The next one follows, if there is one."""
        self._write("END")

    def close(self) -> None:
        self._process.communicate(timeout=60)

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _read(self, word: str) -> list[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return line.split()
        raise SystemExit("one side ended early: no comparison")


def _take_turns(checkouts: tuple[Path, Path], name: str, turns: int, kept: tuple[Figures, Figures]) -> None:
    with tempfile.TemporaryDirectory() as output:
        sides = [_Side(checkout, name, Path(output) / str(at)) for at, checkout in enumerate(checkouts)]
        try:
            for figure in IN_TURNS[name]:
                for side in sides:
                    side.wait_ready()
                for side in sides:
                    side.take_turn(WARM_UP_SECONDS)
                rates: list[list[float]] = [[], []]
                for number in range(turns):
                    for at in (0, 1) if number % 2 else (1, 0):
                        rates[at].append(sides[at].take_turn(TURN_SECONDS))
                for side, figures, found in zip(sides, kept, rates, strict=True):
                    side.end_figure()
                    figures[figure] = found
                print(f"{figure}: here / base {report.median_ratio(*rates):.3f} in {turns} turns", flush=True)
        finally:
            for side in sides:
                side.close()


def _environment(checkout: Path) -> dict[str, str]:
    """The checkout's packages come before those that are installed."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    folders = [str(checkout), *sorted({str((checkout / package).parent) for package in packages})]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=HERE, check=True)


if __name__ == "__main__":
    sys.exit(main())
