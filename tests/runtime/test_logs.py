"""Log lines say what strangers sent without being longer or other lines for it."""

import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_runtime import log_values, logs
from rocketmq_runtime.log_limiter import LogLimiter
from rocketmq_runtime.log_values import MAX_ITEMS, MAX_TEXT, plain
from rocketmq_settings.declare import LogFormat
from tests.paths import ROOT

NASTY = "\x1b]0;owned\x07\x00\r\n2026 [error] forged\u202e\x9b31m"


def written(monkeypatch: pytest.MonkeyPatch, log_format: LogFormat) -> tuple[structlog.stdlib.BoundLogger, io.StringIO]:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure(log_format, "info")
    return structlog.stdlib.get_logger("some.module"), stream


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_strangers_write_no_controls_and_no_lines(monkeypatch: pytest.MonkeyPatch, log_format: LogFormat) -> None:
    log, stream = written(monkeypatch, log_format)
    log.info(NASTY, broker=NASTY, told=[NASTY], table={NASTY: NASTY}, other=ValueError(NASTY))
    logging.getLogger("library").warning("said %s", NASTY)
    text = stream.getvalue()
    assert text.count("\n") == 2
    assert text.replace("\n", "").isprintable()
    assert "forged" in text


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_tracebacks_keep_their_lines_only(monkeypatch: pytest.MonkeyPatch, log_format: LogFormat) -> None:
    log, stream = written(monkeypatch, log_format)
    try:
        raise ValueError(NASTY + "y" * 100_000)
    except ValueError:
        log.exception("request failed", code=1)
    text = stream.getvalue()
    assert "ValueError" in text
    assert text.replace("\n", "").isprintable()
    assert len(text) < 30_000
    if log_format == "json":
        assert json.loads(text)["exception"][0]["frames"]


class TestFloods:
    """What anybody sends fills no log, whatever code writes about it."""

    @pytest.fixture
    def now(self) -> list[float]:
        return [0.0]

    @pytest.fixture
    def stream(self, monkeypatch: pytest.MonkeyPatch, now: list[float]) -> Iterator[io.StringIO]:
        _, stream = written(monkeypatch, "json")
        root = logging.getLogger()
        before = root.handlers[0]
        handler = logs.BoundedHandler(stream, clock=lambda: now[0])
        handler.setFormatter(before.formatter)
        root.handlers[:] = [handler]
        yield stream
        root.handlers[:] = [before]

    def lines(self, stream: io.StringIO) -> list[dict[str, Any]]:
        return [json.loads(line) for line in stream.getvalue().splitlines()]

    @pytest.mark.parametrize("library", [False, True])
    def test_one_message(self, stream: io.StringIO, now: list[float], *, library: bool) -> None:
        log, ours = logging.getLogger("library"), structlog.get_logger("m")
        for number in range(10 * logs.LINES_OF_EVENT):
            if library:
                log.error("failed on connection %s", number, exc_info=ValueError(number))
            else:
                ours.error("request failed", code=number, exc_info=ValueError(number))
        ours.info("another")
        assert len(self.lines(stream)) == logs.LINES_OF_EVENT + 1
        now[0] += logs.LOG_SECONDS
        ours.info("another")
        told, last = self.lines(stream)[-2:]
        assert (told["event"], told["level"], last["event"]) == ("log lines left out", "warning", "another")
        assert told["count"] == 9 * logs.LINES_OF_EVENT
        event = "failed on connection %s" if library else "request failed"
        assert told["most"] == {event: told["count"]}
        ours.info("another")
        now[0] += logs.LOG_SECONDS
        ours.info("another")
        assert [line["event"] for line in self.lines(stream)[-2:]] == ["another"] * 2, "nothing was left out since"

    def test_all_messages_of_libraries(self, stream: io.StringIO) -> None:
        log = logging.getLogger("library")
        for message in map(str, range(3 * logs.LINES)):
            log.info(message)
        assert len(self.lines(stream)) == logs.LINES
        log.critical("the process ends")
        assert self.lines(stream)[-1]["event"] == "the process ends"

    def test_no_message_takes_the_room_of_another(self, stream: io.StringIO) -> None:
        log = structlog.get_logger("m")
        for message in map(str, range(20)):
            for _ in range(2 * logs.LINES_OF_EVENT):
                log.info(message)
        groups = [f"broker-{number}" for number in range(3 * logs.LINES_OF_EVENT)]
        for group in groups:
            log.info("election", broker=group)
        log.error("dispatching stops")
        logging.getLogger().handlers[0].close()
        found = self.lines(stream)
        assert [line["broker"] for line in found if line["event"] == "election"] == groups
        assert [line["event"] for line in found[-2:]] == ["dispatching stops", "log lines left out"]
        assert found[-1]["count"] == 20 * logs.LINES_OF_EVENT

    def test_what_a_limiter_leaves_out_is_told_at_the_end(self, stream: io.StringIO) -> None:
        may_log = LogLimiter(lambda: 0.0, 60)
        assert [may_log("a host") for _ in range(5)].count(True) == 1
        logging.getLogger().handlers[0].close()
        assert [line["count"] for line in self.lines(stream)] == [4]

    def test_every_process_writes_through_it(self) -> None:
        """No package of a process has another way to its log."""
        own = re.compile(r"StreamHandler\(|basicConfig\(|addHandler\(|print_exc\(|sys\.stderr\.write")
        found = [
            str(file.relative_to(ROOT))
            for folder in ("libs/rocketmq_runtime", "broker", "broker_sidecar", "controller_core", "nameserver")
            for file in (ROOT / folder).rglob("*.py")
            if file.name != "logs.py" and own.search(file.read_text())
        ]
        assert found == []


def test_long_values_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    log, stream = written(monkeypatch, "json")
    log.info("broker registered", broker="x" * 70_000, told=["y" * 70_000] * 70_000, number=10**30)
    line = json.loads(stream.getvalue())
    assert line["broker"] == "x" * MAX_TEXT + "... of 70000 characters"
    assert len(line["told"]) == MAX_ITEMS + 1
    assert line["told"][-1] == "... of 70000"
    assert line["number"] == 10**30


values: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
)


@given(values)
def test_whatever_is_logged_can_be_printed(value: object) -> None:
    assert repr(plain(value)).isascii() or "\x1b" not in str(plain(value))
    for text in texts(plain(value)):
        assert not any(ord(character) in log_values._CONTROLS for character in text)


def texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from texts(key)
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
