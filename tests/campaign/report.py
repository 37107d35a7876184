"""The results of rounds, as Markdown for docs/reliability.md."""

from collections import Counter
from pathlib import Path

from tests.campaign.runner import Outcome

_HEADS = (
    *("story", "rounds", "faults", "acknowledged", "lost", "early", "rolled back", "set violations", "logs differ"),
    *("stuck", "defects", "sent twice", "elections", "longest gap", "failed rounds"),
)


def write(folder: Path, seed: int, outcomes: list[Outcome]) -> str:
    """The report, which is then also in folder/report.md."""
    minutes = sum(outcome.seconds for outcome in outcomes) / 60
    report = f"Seed {seed}, {len(outcomes)} rounds, {minutes:.0f} minutes.\n\n{stories(outcomes)}\n{faults(outcomes)}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.md").write_text(report)
    return report


def stories(outcomes: list[Outcome]) -> str:
    """A line for each story."""
    lines = [_row(_HEADS), "|---" * len(_HEADS) + "|"]
    for story in dict.fromkeys(sorted(outcome.story for outcome in outcomes)):
        mine = [outcome for outcome in outcomes if outcome.story == story]
        lines.append(
            _row(
                (
                    story,
                    len(mine),
                    sum(sum(outcome.faults.values()) for outcome in mine),
                    *(
                        sum(getattr(outcome, count) for outcome in mine)
                        for count in (
                            *("acked", "lost", "early", "fell_back", "set_violations", "logs_differ"),
                            *("stuck", "defects", "twice", "elections"),
                        )
                    ),
                    f"{max(outcome.longest_gap for outcome in mine):.1f} s",
                    sum(bool(outcome.violations) for outcome in mine),
                )
            )
        )
    return "\n".join(lines) + "\n"


def faults(outcomes: list[Outcome]) -> str:
    """How often each one struck, in which stories."""
    names = list(dict.fromkeys(sorted(outcome.story for outcome in outcomes)))
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    for outcome in outcomes:
        counts[outcome.story].update(outcome.faults)
    lines = [_row(("fault", *names)), "|---" * (1 + len(names)) + "|"]
    for fault in sorted({fault for count in counts.values() for fault in count}):
        lines.append(_row((fault, *(counts[name][fault] or "" for name in names))))
    return "\n".join(lines) + "\n"


def _row(cells: tuple[object, ...]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"
