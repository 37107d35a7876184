"""Files beside the log that cannot be written: each failure is in the log, once, and none ends replication."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rocketmq_runtime.files.filesystem import StorageError
from tests.sidecar.replication.replica_kit import replicas


@pytest.mark.parametrize("error", [OSError(28, "No space left"), StorageError(Path("x"), "no space"), ValueError("no")])
async def test_a_failure_is_logged(tmp_path: Path, error: Exception) -> None:
    async def fails() -> None:
        raise error

    with capture_logs() as lines:
        async with replicas(tmp_path, 1) as (one,):
            one.replication._log.in_background(fails())
            await one.settled()
    heard = [(line["log_level"], line["event"].split(":")[0]) for line in lines if line["log_level"] != "info"]
    expected = ("error", "a file beside the log is not written because of a bug")
    if not isinstance(error, ValueError):
        expected = ("warning", "a file beside the log is not written")
    assert heard.count(expected) == 1
