"""Lines about the same trouble."""

from rocketmq_runtime import log_limiter
from rocketmq_runtime.log_limiter import LogLimiter


def test_a_line_per_key_and_period() -> None:
    now = 0.0
    may_log = LogLimiter(lambda: now, 60)
    assert may_log("a")
    assert not may_log("a")
    assert may_log("b")
    now = 59.9
    assert not may_log("a")
    now = 60.0
    assert may_log("a")
    assert not may_log("a")


def test_what_is_remembered_is_bounded() -> None:
    now = 0.0
    may_log = LogLimiter(lambda: now, 60)
    for _ in range(3):
        said = [may_log(f"{number}" + "x" * 10_000) for number in range(10 * log_limiter.MAX_KEYS)]
        assert said.count(True) == log_limiter.MAX_KEYS
        assert len(may_log._periods) <= log_limiter.MAX_KEYS
        assert max(map(len, may_log._periods)) <= log_limiter.MAX_KEY
        now += 60.0


def test_other_keys_are_logged_again_after_a_flood() -> None:
    now = 0.0
    may_log = LogLimiter(lambda: now, 60)
    for number in range(2 * log_limiter.MAX_KEYS):
        may_log(str(number))
    assert not may_log("honest")
    now = 60.0
    assert may_log("honest")


def test_several_lines_a_period() -> None:
    now = 0.0
    may_log = LogLimiter(lambda: now, 60, lines=3)
    assert [may_log("a") for _ in range(5)] == [True, True, True, False, False]
    now = 60.0
    assert [may_log("a") for _ in range(5)] == [True, True, True, False, False]
