"""Log lines say what strangers sent without being longer or other lines for it."""

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_runtime import log_values, logs
from rocketmq_runtime.log_values import MAX_ITEMS, MAX_TEXT, plain
from rocketmq_settings.declare import LogFormat

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
