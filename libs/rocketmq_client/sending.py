"""Values of sending: results, which errors are retried, the queues of a topic in turn. Used by `producer`."""

from typing import Final

import msgspec

from rocketmq_client.routes import PublishQueue, TopicRoute
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.send_frames import SendAnswer, SendTemplate

RETRIED: Final = frozenset(
    (
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    )
)
"""Refusals after which another broker, or the same one later, may take the message."""
STORED: Final = frozenset(
    (
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    )
)
"""Answers to a message that the broker has; only SUCCESS promises the copies that its configuration asks for."""
REFUSED_UNSEEN: Final = frozenset(
    (
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.INVALID_PARAMETER,
    )
)
"""Refusals that a broker makes before it would store anything."""


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message went. `code` is one of `STORED`; SUCCESS means acknowledged."""

    code: int
    msg_id: str
    """The UNIQ_KEY that the client gave the message; of a batch, its messages' joined with commas."""
    offset_msg_id: str
    """The broker's id: its address and the physical offset; of a batch, joined with commas."""
    broker_name: str
    queue_id: int
    queue_offset: int
    broker_address: str
    attempts: int

    @property
    def acknowledged(self) -> bool:
        return self.code == ResponseCode.SUCCESS


class Job(msgspec.Struct, frozen=True, gc=False):
    """One send, whatever its attempts."""

    topic: str
    queue_id: int | None
    born_ms: int
    msg_id: str
    properties: bytes
    """As `send_frames.json_properties` has them."""
    body: bytes
    batch: bool = False

    def frame(self, target: "Target", opaque: int) -> bytes:
        """The request to `target`.

        Raises:
            ValueError: larger than a frame.
        """
        template = target.batch_template if self.batch else target.template
        return template.frame(opaque, self.born_ms, self.properties, self.body)

    def result(self, target: "Target", answer: SendAnswer, attempts: int) -> SendResult | None:
        """What `answer` means, None if the broker does not have the message."""
        fields = answer.fields
        if answer.code not in STORED or fields is None:
            return None
        queue = target.queue
        return SendResult(
            answer.code,
            self.msg_id,
            fields.msg_id,
            queue.broker_name,
            fields.queue_id,
            fields.queue_offset,
            queue.address,
            attempts,
        )


class Target(msgspec.Struct):
    """A queue to send to, with all that its messages have in common."""

    queue: PublishQueue
    template: SendTemplate
    batch_template: SendTemplate


class Targets:
    """The queues of one topic, used in turn."""

    def __init__(self, route: TopicRoute, group: str) -> None:
        self.route = route
        self._targets = [_target(route.topic, queue, group) for queue in route.publish]
        self._turn = 0

    def next(self, *, other_than: str | None = None) -> Target | None:
        """The queue whose turn it is, at a broker not named `other_than` if there is one; None without any queue."""
        targets = self._targets
        for _ in range(1 if other_than is None else len(targets)):
            turn = self._turn
            if turn >= len(targets):
                if not targets:
                    return None
                turn = 0
            self._turn = turn + 1
            if targets[turn].queue.broker_name != other_than:
                return targets[turn]
        return self.next() if targets else None

    def queue(self, queue_id: int) -> Target | None:
        """The queue of this id, at the first broker that has it."""
        return next((target for target in self._targets if target.queue.queue_id == queue_id), None)


def _target(topic: str, queue: PublishQueue, group: str) -> Target:
    template, batch_template = (
        SendTemplate(
            producer_group=group, topic=topic, queue_id=queue.queue_id, broker_name=queue.broker_name, batch=batch
        )
        for batch in (False, True)
    )
    return Target(queue, template, batch_template)
