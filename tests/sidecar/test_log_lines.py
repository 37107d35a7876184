"""The machine's notes are log lines as any other: written as configured, also if that came after the imports."""

import structlog
from structlog.testing import LogCapture

from rocketmq_sidecar.control.agent import write_log_line
from rocketmq_sidecar.domain.actions import LogLine


def test_notes_are_written_as_configured() -> None:
    capture = LogCapture()
    before = structlog.get_config()
    structlog.configure(processors=[capture])
    try:
        write_log_line(LogLine("one text", {"fact": 1}, "warning"))
        write_log_line(LogLine("another", {}))
    finally:
        structlog.configure(**before)
    assert capture.entries == [
        {"event": "one text", "fact": 1, "log_level": "warning"},
        {"event": "another", "log_level": "info"},
    ]
