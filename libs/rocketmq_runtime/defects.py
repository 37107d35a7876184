"""The last resort of a task that runs for long: a defect ends one turn of it, not the task.

If the task ended, nothing would tell that its work is no longer done. Where a defect is also a result (a call that
failed, a table that is not written, a longer pause), the code there catches it itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from structlog.typing import FilteringBoundLogger


@contextmanager
def survive_defects(log: FilteringBoundLogger, event: str, **values: object) -> Iterator[None]:
    """What the block raises is logged as `event`, with `values` and its traceback; the code after the block continues.
    Expected errors are caught inside the block. A cancellation is not stopped."""
    try:
        yield
    except Exception:
        log.exception(event, **values)
