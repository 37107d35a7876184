"""A defect is reported, and the task that met it continues."""

import asyncio

import pytest
import structlog
from structlog.testing import capture_logs

from rocketmq_runtime.defects import survive_defects

log = structlog.get_logger()


def test_a_defect_is_logged_and_the_code_after_the_block_continues() -> None:
    continued = False
    with capture_logs() as lines:
        with survive_defects(log, "unexpected error", server="n:1"):
            raise ZeroDivisionError
        continued = True
    assert continued
    assert lines == [{"event": "unexpected error", "server": "n:1", "exc_info": True, "log_level": "error"}]


def test_without_a_defect_nothing_is_logged() -> None:
    with capture_logs() as lines, survive_defects(log, "unexpected error"):
        pass
    assert lines == []


def test_a_cancellation_is_not_stopped() -> None:
    with capture_logs() as lines, pytest.raises(asyncio.CancelledError), survive_defects(log, "unexpected error"):
        raise asyncio.CancelledError
    assert lines == []
