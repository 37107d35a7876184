"""What the functions in `requests` return: the answer on the wire and the events to commit before it may be sent.

A refusal is a Decision like any other; exceptions mean bugs.
"""

import msgspec

from rocketmq_controller.domain.events import Event
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.json.bodies import Body
from rocketmq_formats.remoting.headers import Header


class Decision(msgspec.Struct, frozen=True):
    """Answer and events; with events the answer holds only once they are committed and none of them was void."""

    code: ResponseCode
    remark: str | None = None
    header: Header | None = None
    body: Body | None = None
    events: tuple[Event, ...] = ()


def superseded(decision: Decision) -> Decision:
    """The answer when a committed event was void: the group changed between deciding and applying."""
    return Decision(
        ResponseCode.SYSTEM_ERROR,
        "The broker set changed while the request was being committed, try again",
        decision.header and type(decision.header)(),
    )
