"""The result as text, where what it tells of comes from messages that anybody may have sent."""

import pytest

from rocketmq_verify.domain.repair import repairs
from rocketmq_verify.history.rows import Group
from rocketmq_verify.report import text_report
from rocketmq_verify.run import Checked, Run, Timings
from tests.verify.report.report_kit import A, B, C, figures, flipped, plan, verdict

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
