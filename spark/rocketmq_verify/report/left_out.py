"""What a run did not look at: "aligned" says nothing about it. For all reports."""

from rocketmq_verify.domain.times import when
from rocketmq_verify.run import Run
from rocketmq_verify.sizes import format_bytes


def left_out(run: Run) -> tuple[str, ...]:
    """One phrase each; empty if nothing was compared, or everything was read."""
    verdict, checked = run.verdict, run.checked
    if verdict.aligned_up_to is None:
        return ()
    found = []
    rest = verdict.old_bytes - max(verdict.compared_bytes - verdict.new_bytes, 0)
    if rest > 0 and not verdict.full:
        since = "" if run.oldest is None else f" since {when(run.oldest.since_ms)}"
        found.append(f"{format_bytes(rest)} that earlier runs compared{since}")
    if run.later_bytes:
        found.append(f"{format_bytes(run.later_bytes)} that were due: the time was up")
    if verdict.compared_bytes or verdict.full:
        if checked.structure is None:
            found.append("the structure of the log")
        if checked.queues is None:
            found.append("consume queues")
        found += [f"what could not be checked: {why}" for why in checked.unchecked]
    return tuple(found)
