"""The machine's notes are log lines as any other: written as configured, also if that came after the imports."""

import structlog
from structlog.testing import LogCapture

from rocketmq_sidecar.agent import log_note
from rocketmq_sidecar.domain.actions import Note


def test_notes_are_written_as_configured() -> None:
    capture = LogCapture()
    before = structlog.get_config()
    structlog.configure(processors=[capture])
    try:
        log_note(Note("one text", {"fact": 1}, "warning"))
        log_note(Note("another", {}))
    finally:
        structlog.configure(**before)
    assert capture.entries == [
        {"event": "one text", "fact": 1, "log_level": "warning"},
        {"event": "another", "log_level": "info"},
    ]
