"""hack/real_time.py: which tests depend on the speed of the machine."""

import pytest

from tests.paths import ROOT
from tests.scripts import load_script

real_time = load_script(ROOT / "hack" / "real_time.py")


def problems(text: str) -> list[str]:
    return list(real_time.problems("f", text))


@pytest.mark.parametrize(
    "line",
    [
        "time.sleep(5)",
        "assert time.monotonic() < end",
        "client.call(address, timeout=0.01)",
        "asyncio.timeout(0.5)",
        "asyncio.wait_for(task, 0.2)",
    ],
)
def test_what_depends_on_the_machine(line: str) -> None:
    assert len(problems(f"def test_it():\n    {line}\n")) == 1
    for mark in ("processes", "interop", "java", "looptime"):
        assert problems(f"@pytest.mark.{mark}\ndef test_it():\n    {line}\n") == []
    assert problems(f"pytestmark = [pytest.mark.processes, pytest.mark.timeout(9)]\ndef test_it():\n    {line}\n") == []
    assert problems(f"def test_it():\n    {line}  # any speed\n") == []


@pytest.mark.parametrize(
    "line",
    ["client.call(address, timeout=60)", "asyncio.timeout(10)", "asyncio.sleep(0)", "loop.time()", "call(timeout=0)"],
)
def test_what_does_not(line: str) -> None:
    assert problems(f"def test_it():\n    {line}\n") == []


def test_a_mark_of_another_test_exempts_nothing() -> None:
    text = "@pytest.mark.processes\ndef test_a(): ...\n\ndef test_b():\n    time.sleep(1)\n"
    assert problems(text) == ["f:5: time.sleep is the machine's time"]
