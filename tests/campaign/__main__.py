"""`python -m tests.campaign --minutes 20 --seed 7`: rounds until the time is over. Exit codes: 0, 1 if a promise was
broken, 2 if this machine cannot run it.

A failing round is repeated with `--seed S --round N` and the options printed with it; its logs, diary and outcome stay
in build/campaign.
"""

import argparse
import itertools
import multiprocessing
import shutil
import signal
import sys
import time
from pathlib import Path

import msgspec

from tests.campaign import network
from tests.campaign.mutations import MUTATIONS, SECONDS, Mutation
from tests.campaign.needs import MissingError, check
from tests.campaign.plan import SHORT, SHORT_MINUTES, STORIES, Plan, draw
from tests.campaign.report import write
from tests.campaign.runner import Outcome, broken_off, run_round

ROUND = 60.0
"""Seconds of faults in one round."""
OVERHEAD = 25.0
"""Seconds of a round without faults: the start, the end, reading everything back."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description="faults on real processes, judged")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--round", type=int, help="this round only; with --mutations, this round first")
    parser.add_argument("--story", choices=[story.name for story in STORIES], help="rounds of this story only")
    parser.add_argument("--seconds", type=float, help=f"of faults in a round: {ROUND:g}, less in a short campaign")
    parser.add_argument("--keep-going", action="store_true", help="more rounds after one that failed")
    parser.add_argument("--second-chance", action="store_true", help="a round fails if it fails twice")
    parser.add_argument("--mutations", nargs="*", metavar="NAME", help="plant these defects, or all, and find them")
    parser.add_argument("--folder", type=Path, default=Path("build/campaign"))
    arguments = parser.parse_args()
    if arguments.mutations is not None and (unknown := set(arguments.mutations) - MUTATIONS.keys()):
        parser.error(f"unknown mutations {sorted(unknown)}: choose from {sorted(MUTATIONS)}")
    short = arguments.minutes < SHORT_MINUTES and arguments.story is None
    names = [arguments.story] if arguments.story else list(SHORT if short else (story.name for story in STORIES))
    planted = None if arguments.mutations is None else arguments.mutations or list(MUTATIONS)
    if planted is not None:
        names = [MUTATIONS[name].story for name in planted]
    try:
        check(official=any(story.official for story in STORIES if story.name in names))
    except MissingError as error:
        print(f"campaign: {error}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = arguments.folder.absolute()
    network.remove_leftovers()
    shutil.rmtree(folder, ignore_errors=True)
    try:
        if planted is not None:
            return find_mutations(planted, arguments.seed, folder, first=arguments.round or 0)
        return find_violations(arguments, names, folder, short=short)
    finally:
        network.remove_leftovers()


def find_violations(arguments: argparse.Namespace, names: list[str], folder: Path, *, short: bool) -> int:
    """Rounds of the stories `names` until the time is over; 1 if one breaks a promise."""
    seconds = arguments.seconds or (max(15.0, 60 * arguments.minutes / len(names) - OVERHEAD) if short else ROUND)
    outcomes: list[Outcome] = []
    unstable: list[Outcome] = []
    """Those that failed and then ran again."""
    ends = time.monotonic() + 60 * arguments.minutes
    number = arguments.round or 0
    try:
        while True:
            outcome = one_round(draw(arguments.seed, number, names), folder / f"round-{number}", seconds)
            if outcome.violations and arguments.second_chance:
                unstable.append(outcome)
                outcome = one_round(draw(arguments.seed, number, names), folder / f"round-{number}-again", seconds)
            outcomes.append(outcome)
            number += 1
            if arguments.round is not None or (outcome.violations and not arguments.keep_going):
                break
            # A short campaign has the same rounds on a slow machine too.
            if len(outcomes) >= len(names) if short else time.monotonic() + outcome.seconds > ends:
                break
    finally:
        if outcomes:
            print(write(folder, arguments.seed, outcomes))
    for outcome in unstable:
        print(f"unstable: round {outcome.round}, {outcome.story}: {outcome.violations[0]}")
    failed = [outcome for outcome in outcomes if outcome.violations]
    story = f" --story {arguments.story}" if arguments.story else ""
    for outcome in failed:
        print(
            f"again: make campaign MINUTES={arguments.minutes:g} SEED={arguments.seed} "
            f'CAMPAIGN_ARGS="--round {outcome.round} --seconds {seconds:g}{story}"'
        )
    print(f"{len(outcomes) - len(failed)} passed, {len(failed)} failed (seed {arguments.seed})")
    return 1 if failed else 0


def find_mutations(names: list[str], seed: int, folder: Path, *, first: int = 0) -> int:
    """Rounds with each mutation, from the round `first` on, until one breaks a promise; 1 if one is not found in
    `mutations.SECONDS`."""
    lines = ["| rule that is taken away | story | seed | found after | by | as |", "|---|---|---|---|---|---|"]
    missed = 0
    for number, name in enumerate(names):
        mutation = MUTATIONS[name]
        print(f"{name}: {mutation.rule}", flush=True)
        spent, found = 0.0, ""
        for turn in itertools.count(first):
            plan = draw(seed, turn, [mutation.story])
            outcome = one_round(plan, folder / f"mutation-{number}-round-{turn}", ROUND, mutation)
            spent += outcome.seconds
            judged = outcome.seconds > 0
            found = outcome.violations[0] if judged and outcome.violations else ""
            if found or not judged or spent > SECONDS:
                break
        missed += not found
        by = ", ".join(outcome.checks)
        after = f"{spent:.0f} s, in round {turn}" if found else f"not in {spent:.0f} s"
        lines.append(f"| {mutation.rule} | {mutation.story} | {seed} | {after} | {by} | {found[:100]} |")
    table = "\n".join(lines)
    (folder / "mutations.md").write_text(table + "\n")
    print(table)
    return 1 if missed else 0


def one_round(plan: Plan, folder: Path, seconds: float, mutation: Mutation | None = None) -> Outcome:
    """Run it in a process of its own: it enters a network namespace and cannot leave it."""
    print(f"seed {plan.seed} round {plan.round}: {plan.story.name}, {seconds:.0f} s of faults", flush=True)
    process = multiprocessing.get_context("spawn").Process(target=run_round, args=(plan, folder, seconds, mutation))
    process.start()
    try:
        process.join()
    finally:
        process.terminate()
        process.join(30.0)
        process.kill()
    result = folder / "outcome.json"
    if process.exitcode == 0:
        outcome = msgspec.json.decode(result.read_bytes(), type=Outcome)
    else:
        outcome = broken_off(plan, f"the campaign itself ended with {process.exitcode}")
    print(
        f"  {sum(outcome.faults.values())} faults, {outcome.acked} acknowledged, {outcome.lost} lost, "
        f"{outcome.elections} elections, longest gap {outcome.longest_gap:.1f} s, {outcome.seconds:.0f} s",
        flush=True,
    )
    for violation in outcome.violations[:20]:
        print(f"  VIOLATION {violation}", flush=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
