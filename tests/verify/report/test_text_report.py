"""The result as text, where what it tells of comes from messages that anybody may have sent."""

import json

import msgspec
import pytest

from rocketmq_formats.soundness.places import Extent
from rocketmq_formats.soundness.structure import Structure
from rocketmq_verify.domain.planning.ages import Aged
from rocketmq_verify.domain.repair import repairs
from rocketmq_verify.domain.times import when
from rocketmq_verify.history.runs import Group
from rocketmq_verify.report import json_report, text_report
from rocketmq_verify.report.left_out import left_out
from rocketmq_verify.run import Checked, QueueSummary, Run, Timings
from tests.verify.report.report_kit import NOW, SEGMENT, A, B, C, figures, flipped, plan, verdict

SECONDS = Timings(total=9.25, states=0.1, session=8.0, warm_up=3.0, scan=0.5, inquiry=0.1, structure=0.2, queues=0.2)


def run_with(topic: str) -> Run:
    found = (flipped(topic=topic),)
    return Run(
        run_id="r1",
        group=Group("C", "orders"),
        verdict=verdict(findings=found),
        findings=found,
        plan=plan(),
        masters=(A,),
        checked=Checked(),
        repairs=repairs(found, replicas=[A, B, C], masters=[A], group="orders", on_kubernetes=True),
        timings=SECONDS,
        figures=figures(),
        spans=(),
    )


def test_a_damaged_record_with_its_plan() -> None:
    text = text_report.text(run_with("orders-eu"), plan=True)
    assert "MISMATCH corruptRecord: " in text
    assert "  topic orders-eu, queue 3, " in text
    assert f"  {B}: WRONG, body CRC wrong" in text
    assert f"Plan (nothing was executed):\n{B}: " in text
    assert "9.2 s in all, 8.0 s of them until Spark was ready." in text


@pytest.mark.parametrize("hostile", ["\x1b[2Jgone", "a\nINFORMATION aligned", "\u202eevil", "\x9b31m", "\udc80"])
def test_nothing_steers_the_terminal(hostile: str) -> None:
    text = text_report.text(run_with(hostile), plan=True)
    assert hostile not in text
    assert all(line.isprintable() for line in text.splitlines())
    assert len(text.splitlines()) == len(text_report.text(run_with("orders-eu"), plan=True).splitlines())
    text.encode()


def test_what_a_run_did_not_look_at_is_said() -> None:
    run = run_with("orders-eu")
    text = text_report.text(run, plan=False)
    assert ("Not looked at: 6.29 MB that earlier runs compared; the structure of the log; consume queues.\n") in text
    assert "was read since" not in text
    whole = Structure(extent=Extent(0, SEGMENT), first=0, next=SEGMENT)
    queues = QueueSummary(units=1, lag=0, superseded=0, faults=0)
    some = msgspec.structs.replace(
        run, oldest=Aged(4096, 8192, NOW), checked=Checked(structure=whole, queues=queues, unchecked=("b: too old",))
    )
    assert left_out(some) == (
        f"6.29 MB that earlier runs compared since {when(NOW)}",
        "what could not be checked: b: too old",
    )
    assert (
        f"Every byte that was compared was read since {when(NOW)}; the oldest is at offset 4096.\n"
    ) in text_report.text(some, plan=False)
    told = json.loads(json_report.encode(some, plan=False))
    assert told["oldestRead"] == {"sinceMs": NOW, "offset": 4096}
    old_only = msgspec.structs.replace(run, verdict=verdict(new_bytes=0, old_bytes=8 * SEGMENT))
    assert left_out(old_only)[1:] == ("the structure of the log", "consume queues")
    everything = msgspec.structs.replace(
        some, verdict=verdict(full=True), checked=Checked(structure=whole, queues=queues)
    )
    assert left_out(everything) == ()
    assert json.loads(json_report.encode(some, plan=False))["notLookedAt"] == list(left_out(some))
    assert "Not looked at" not in text_report.text(everything, plan=False)
