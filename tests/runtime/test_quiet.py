"""Lines about the same trouble."""

from rocketmq_runtime import quiet
from rocketmq_runtime.quiet import Quiet


def test_a_line_per_key_and_period() -> None:
    now = 0.0
    may_say = Quiet(lambda: now, 60)
    assert may_say("a")
    assert not may_say("a")
    assert may_say("b")
    now = 59.9
    assert not may_say("a")
    now = 60.0
    assert may_say("a")
    assert not may_say("a")


def test_what_is_remembered_is_bounded() -> None:
    may_say = Quiet(lambda: 0.0, 60)
    for number in range(10 * quiet.MAX_KEYS):
        assert may_say(str(number))
    assert len(may_say._periods) <= quiet.MAX_KEYS


def test_several_lines_a_period() -> None:
    now = 0.0
    may_say = Quiet(lambda: now, 60, lines=3)
    assert [may_say("a") for _ in range(5)] == [True, True, True, False, False]
    now = 60.0
    assert [may_say("a") for _ in range(5)] == [True, True, True, False, False]
