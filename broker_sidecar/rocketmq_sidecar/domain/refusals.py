"""What is told of requests that the controllers refuse: once each, with what an operator has to do if it takes one.
Pure; part of `steward`.
"""

from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_sidecar.domain.actions import Actions, Ask, Note


class Refusals:
    """A question is asked again for as long as it is refused; only what is new is worth a line."""

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None

    def forget(self) -> None:
        """Something was not refused."""
        self._last = None

    def note(self, ask: Ask, answer: RemotingCommand, trouble: str | None) -> Actions:
        """The line for this one, if it is new. `trouble`: what needs an operator."""
        if self._last == (ask.code, answer.code):
            return ()
        self._last = ask.code, answer.code
        values: dict[str, object] = {"code": ask.code.name, "answer": answer.code, "remark": answer.remark}
        if trouble is not None:
            return (Note("refused by the controllers", {**values, "reason": trouble}, "error"),)
        return (Note("refused by the controllers", values, "warning"),)


def unknown_id(cluster_name: str, broker_name: str, broker_id: int | None) -> str:
    """Why 1003 is refused to a replica that has an id, and the ways out."""
    return (
        f"the controllers do not know brokerId {broker_id} of {cluster_name}#{broker_name}: the broker was cleaned, or"
        " their data was lost. If this replica alone is unknown, stop it, move its store away and start it again: it"
        " joins as a new one. Else restore the controllers' data; or stop all replicas of the group, delete"
        " .broker.meta, epochFileCheckpoint and epochFileCheckpoint.bak of each, and start the one with the"
        " longest log first"
    )
