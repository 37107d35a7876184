"""A report of a made-up group with planted faults, for the picture in the docs and for eyes: hack/report_picture.sh.

    python -m tests.verify.report_sample OUT.html

The logs are in memory and small, what is found in them is not made up: the verification's own domain finds it.
"""

import random
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from rocketmq_verify.alignment import spans
from rocketmq_verify.domain.repair import repairs
from rocketmq_verify.history import HistoryStore
from rocketmq_verify.history_rows import Figures
from rocketmq_verify.html_report import render
from tests.verify import faults
from tests.verify.report_kit import GROUP, NOW

HOUR = 3_600_000


def sample(history: str, *, runs: int = 30) -> str:
    """The last of some runs over a group that is written to, one slave of which lags, and another has a bad byte."""
    dice = random.Random(4)
    faults.SEGMENT, faults.CHUNK = 512 << 10, 64 << 10
    group = faults.Group(3)
    for number, replica in enumerate(group.replicas):
        replica.name = faults.ReplicaName(f"broker-a-{number}")
    now = NOW
    store = HistoryStore(history, now_ms=lambda: now)
    late = group.replicas[2]
    for number in range(runs):
        now = NOW + number * HOUR + dice.randrange(HOUR // 20)
        group.clock = now
        last = number == runs - 1
        for _ in range(200 if last else dice.randrange(30, 90)):
            group.put(2000 + dice.randrange(3000))
        if number == 11:
            group.sync()
            group.elect(group.replicas[1])
        group.copy(group.slaves[0])
        group.copy(late, None if number % 6 else dice.randrange(50_000, 100_000))
        if number in {5, 6, 19, 20, 21, runs - 1}:  # it was away for a while, the others went on
            group.connected.discard(late.name)
            for _ in range(dice.randrange(20, 60)):
                group.put(2500)
        group.copy(group.slaves[0])
        if last:
            group.replicas[0].flip(group.messages[-75].body_start + 40, 5)
            late.flip(late.end - 20_000, 2)
        began = time.perf_counter()
        run = faults.verify(
            group.replicas, marks=store.load(GROUP), sample=0.2, full=number == 14, seed=number, now_ms=now
        )
        took = time.perf_counter() - began
        shown = spans(run.verdict, run.plan)
        figures = Figures(started_ms=now, seconds=took, reading_seconds=took)
        store.save(GROUP, f"run{number}", run.verdict, watermarks=run.marks, spans=shown, figures=figures)
    return render(
        run.verdict,
        spans=shown,
        segment_size=faults.SEGMENT,
        figures=figures,
        runs=store.last(GROUP, 200),
        repairs=repairs(
            run.findings,
            replicas=[replica.name for replica in group.replicas],
            masters=[group.master.name],
            group="broker-a",
            on_kubernetes=True,
        ),
    )


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        Path(sys.argv[1]).write_text(sample(folder), encoding="utf-8")
