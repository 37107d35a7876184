"""Figures as text: a line while measuring, a table of medians with spread, ratio and target at the end."""

import math
import statistics
from collections.abc import Mapping, Sequence

from benchmarks.targets import TARGETS, Target

Kept = Mapping[str, Mapping[str, Sequence[float]]]
"""engine -> figure -> one value a round."""


def line(figures: Mapping[str, float]) -> str:
    """One round's figures."""
    return ", ".join(f"{name} {number(value)}" for name, value in figures.items())


def table(kept: Kept) -> tuple[str, list[str]]:
    """A Markdown table, and the figures whose target is missed."""
    rows = ["| what | Java 5.3.3 | ours | ours / Java | promised | kept |", "|---|---|---|---|---|---|"]
    missed: list[str] = []
    for name, target in TARGETS.items():
        our_figure, java_figure = target.figures or (name, name)
        values, others = kept["ours"].get(our_figure), kept["java"].get(java_figure)
        if not values:
            continue
        ours, java = statistics.median(values), statistics.median(others) if others else None
        if not target.met(ours, java):
            missed.append(name)
        rows.append(
            f"| {target.what} | {_spread(others, target.unit)} | {_spread(values, target.unit)} "
            f"| {number(ours / java) if java else '-'} | {_promise(target)} | {_kept(target, missed=name in missed)} |"
        )
    return "\n".join(rows) + "\n", missed


def comparison(
    base: Mapping[str, Sequence[float]], ours: Mapping[str, Sequence[float]], tolerance: float
) -> tuple[str, list[str]]:
    """A Markdown table of two commits, and the figures that are worse than the base's by more than `tolerance` per
    cent: the median of the ratios, value by value. Figures that one of them does not have are left out."""
    rows = ["| figure | base | here | here / base |", "|---|---|---|---|"]
    worse: list[str] = []
    for name, target in TARGETS.items():
        figure = (target.figures or (name, name))[0]
        if figure != name or not base.get(figure) or not ours.get(figure):
            continue
        ratio = median_ratio(base[figure], ours[figure])
        limit = 1 - tolerance / 100 if target.more_is_better else 1 + tolerance / 100
        if ratio < limit if target.more_is_better else ratio > limit:
            worse.append(name)
        rows.append(
            f"| {name} | {_spread(base[figure], target.unit)} | {_spread(ours[figure], target.unit)} | {ratio:.3f} |"
        )
    return "\n".join(rows) + "\n", worse


def median_ratio(base: Sequence[float], ours: Sequence[float]) -> float:
    """Of ours to base, value by value; against a base of zeros 1.0 if ours are zeros too, else infinite."""
    ratios = [after / before for before, after in zip(base, ours, strict=False) if before]
    if ratios:
        return statistics.median(ratios)
    return math.inf if any(ours) else 1.0


def number(value: float) -> str:
    """Three digits that matter, without exponents."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _spread(values: Sequence[float] | None, unit: str) -> str:
    if not values:
        return "-"
    median = number(statistics.median(values))
    return f"{median} {unit}" if len(values) < 2 else f"{median} {unit} ({number(min(values))}..{number(max(values))})"


def _kept(target: Target, *, missed: bool) -> str:
    if target.ratio is None and target.bound is None:
        return "-"
    return "no" if missed else "yes"


def _promise(target: Target) -> str:
    sign = "at least" if target.more_is_better else "at most"
    promises = []
    if target.ratio is not None:
        promises.append(f"{sign} {number(target.ratio)}x Java")
    if target.bound is not None:
        promises.append(f"{sign} {number(target.bound)} {target.unit}")
    return ", ".join(promises) or "-"
