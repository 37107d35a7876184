"""Log lines about requests that the controllers refuse: once each, with advice if an operator is needed. Pure; part of
`session`.
"""

from typing import Final

from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_sidecar.domain.actions import Actions, LogLine, Request

OLD_CONTROLLERS: Final = (
    "the controllers are older than RocketMQ 5.1.1: they do not know the requests by which a broker gets a brokerId"
    " that it keeps. Replace them by controllers of 5.1.1 or later, or by rocketmq-controller"
)


class Refusals:
    """A refused request is repeated; only a new refusal is logged."""

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None

    def forget(self) -> None:
        """A request was accepted."""
        self._last = None

    def log_lines(self, request: Request, answer: RemotingCommand, trouble: str | None) -> Actions:
        """The line for this refusal, if it is new. `trouble`: what needs an operator."""
        if self._last == (request.code, answer.code):
            return ()
        self._last = request.code, answer.code
        values: dict[str, object] = {"code": request.code.name, "answer": answer.code, "remark": answer.remark}
        if trouble is not None:
            return (LogLine("refused by the controllers", {**values, "reason": trouble}, "error"),)
        return (LogLine("refused by the controllers", values, "warning"),)


def unknown_id(cluster_name: str, broker_name: str, broker_id: int | None) -> str:
    """Why 1003 is refused to a replica that has an id, and what an operator can do."""
    return (
        f"the controllers do not know brokerId {broker_id} of {cluster_name}#{broker_name}: the broker was cleaned, or"
        " their data was lost. If this replica alone is unknown, stop it, move its store away and start it again: it"
        " joins as a new one. Otherwise restore the controllers' data; or stop all replicas of the group, delete"
        " .broker.meta, epochFileCheckpoint and epochFileCheckpoint.bak of each, and start the one with the"
        " longest log first"
    )
