"""Rounds: a cluster, load, faults, healing, judgement."""

import asyncio
import faulthandler
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from tests.campaign import disks, judge, shim, timeline
from tests.campaign.cluster import Cluster, node_names
from tests.campaign.defects import find_defects
from tests.campaign.faults import FAULTS
from tests.campaign.load import Load
from tests.campaign.mutations import Mutation, plant
from tests.campaign.nemesis import Nemesis, NeverSettledError
from tests.campaign.network import Network
from tests.campaign.plan import Plan
from tests.campaign.watcher import Watcher

HANGS = 600.0
"""Seconds after the faults in which a round has to end; else the campaign itself hangs, and says where."""
START, QUIET, READ = 60.0, 90.0, 60.0
"""Seconds that a group may take to start, to be whole after the last fault, to have everything read."""
OFFICIAL_START, OFFICIAL_QUIET = 180.0, 300.0
"""With an official broker: three have taken 60 s to start on a busy machine, and one whose log is cut may take 90 s for
that alone."""


class Outcome(msgspec.Struct):
    """The result of one round."""

    seed: int
    round: int
    story: str
    violations: list[str]
    checks: list[str] = []
    """By which checks those were found."""
    seconds: float = 0.0
    faults: dict[str, int] = {}
    acked: int = 0
    refused: int = 0
    open: int = 0
    lost: int = 0
    early: int = 0
    fell_back: int = 0
    set_violations: int = 0
    logs_differ: int = 0
    stuck: int = 0
    defects: int = 0
    twice: int = 0
    elections: int = 0
    longest_gap: float = 0.0


def broken_off(plan: Plan, why: str) -> Outcome:
    """The result of a round that did not finish."""
    return Outcome(plan.seed, plan.round, plan.story.name, [why])


def run_round(plan: Plan, folder: Path, seconds: float, mutation: Mutation | None = None) -> None:
    """One round, in a process of its own, whose end leaves nothing running or mounted. The outcome is in
    folder/outcome.json. Raises RuntimeError where namespaces cannot be made."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder.mkdir(parents=True)
    if mutation is not None:
        plant(mutation, folder / "mutant")
        # of the processes that this one starts: its own path does not change
        path = [str(folder / "mutant"), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(path)
    disks.hide_mounts()
    network = Network(node_names(plan))
    try:
        network.enter("client")
        cluster = Cluster(plan, folder / "nodes", network, shim.build(folder))
        try:
            faulthandler.dump_traceback_later(seconds + HANGS, exit=True)
            outcome = asyncio.run(_round(plan, cluster, seconds, folder))
            faulthandler.cancel_dump_traceback_later()
            if outcome.violations:
                cluster.keep(folder)
        finally:
            cluster.close()
    finally:
        network.close()
    (folder / "outcome.json").write_bytes(msgspec.json.format(msgspec.json.encode(outcome)))
    shutil.rmtree(folder / "nodes", ignore_errors=True)


async def _round(plan: Plan, cluster: Cluster, seconds: float, folder: Path) -> Outcome:
    verdict = judge.Verdict()
    cluster.start()
    began = time.monotonic()
    load = Load(cluster, plan.rng("load"), per_second=300)
    watcher = Watcher(cluster)
    nemesis = Nemesis(cluster, load, plan.strikes(), plan.pause)
    history = load.history
    start, quiet = (OFFICIAL_START, OFFICIAL_QUIET) if plan.story.official else (START, QUIET)
    try:
        if not await cluster.settled(start):
            raise NeverSettledError(f"the group was not whole {start:g} s after its start")
        await load.prepare(start)
        watcher.start()
        load.start()
        await load.flows(start)
        now = asyncio.get_running_loop().time
        await nemesis.strike(FAULTS, now() + seconds)
        await _quiet(cluster, load, quiet)
        await load.stop_sending()
        await _settled(cluster, READ)
        await judge.judge(cluster, history, verdict, deadline=now() + READ)
    except (NeverSettledError, TimeoutError) as error:
        verdict.stuck = f"stuck: {error}"
        await load.stop_sending()
        with suppress(TimeoutError):  # what can still be read explains more
            await judge.judge(cluster, history, verdict, deadline=asyncio.get_running_loop().time() + 10)
        verdict.late_lost = []  # there was no time for them to come
    finally:
        with suppress(Exception):
            await load.stop()
        await watcher.stop()
    verdict.controllers = watcher.rules.violations
    cluster.end_processes()
    verdict.defects = find_defects(cluster.folder)
    verdict.forgot = judge.forgetful(cluster.replicas)
    if not verdict.stuck:
        judge.compare_logs(cluster.replicas, history, verdict)
    (folder / "diary.txt").write_text("".join(f"{event}\n" for event in nemesis.diary))
    violations = verdict.violations(plan.story)
    acknowledged = [acked.at for acked in history.acked.values()]
    title = f"Campaign, seed {plan.seed}, round {plan.round}: {plan.story.name}"
    shown = timeline.Round(title, violations, nemesis.diary, watcher.rules.roles, acknowledged, verdict.lost_at)
    (folder / "timeline.html").write_text(timeline.page(shown))
    if verdict.lost or verdict.late_lost:  # a story may allow it, and yet it has to have a reason
        (folder / "lost.txt").write_text("\n".join([*verdict.lost, *verdict.late_lost]) + "\n")
    return Outcome(
        seed=plan.seed,
        round=plan.round,
        story=plan.story.name,
        seconds=time.monotonic() - began,
        faults=dict(nemesis.counts),
        acked=verdict.acked,
        refused=history.refused,
        open=history.open,
        lost=len(verdict.lost) + len(verdict.late_lost),
        early=len(verdict.early),
        fell_back=len(verdict.fell_back),
        set_violations=len(verdict.controllers),
        logs_differ=len(verdict.logs_differ),
        defects=len(verdict.defects),
        stuck=1 if verdict.stuck else 0,
        twice=verdict.twice,
        elections=watcher.rules.elections,
        longest_gap=history.longest_gap,
        violations=violations,
        checks=list(verdict.by_check(plan.story)),
    )


async def _quiet(cluster: Cluster, load: Load, patience: float) -> None:
    """Everything is healed: the group has to become whole and accept sends by itself."""
    await _settled(cluster, patience)
    await load.flows(patience)


async def _settled(cluster: Cluster, patience: float) -> None:
    if not await cluster.settled(patience):
        raise NeverSettledError(f"not all in sync {patience:g} s after everything was healed: {await cluster.state()}")
