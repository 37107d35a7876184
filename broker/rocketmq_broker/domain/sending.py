"""Prepares a send for the store: checks it, adds the broker's properties, puts it under the right topic.

`send.py` calls this once per message. A common message (no delay, nothing to rewrite) takes the fast path, which only
scans its properties and appends the broker's.
Source: rocketmq-all-5.3.3: SendMessageProcessor.java, HookUtils.java.
"""

import re
from collections.abc import Callable
from typing import Final

import msgspec

from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.errors import FormatError
from rocketmq_formats.store.message import MAX_PROPERTIES, SysFlag
from rocketmq_formats.store.message_properties import (
    CLUSTER,
    DELAY,
    MSG_REGION,
    POP_CK,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRACE_ON,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    WAIT,
    find_property,
    format_properties,
    parse_properties,
    split_properties,
)
from rocketmq_formats.topics import SCHEDULE_TOPIC

_TIMER: Final = frozenset({TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS})
_DELAYS: Final = (DELAY, *sorted(_TIMER))
_SPECIAL: Final = _TIMER | {DELAY, MSG_REGION, TRACE_ON, CLUSTER, POP_CK, TRANSACTION_PREPARED}
"""Properties that the fast path cannot handle."""
_CLIENTS_FLAGS: Final = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_TYPE | SysFlag.MULTI_TAGS)
"""The flags that a client may set: compression of the body, meaning of the tags."""
_INNER_BATCH: Final = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
_TRANSACTION: Final = int(SysFlag.TRANSACTION_ROLLBACK)
"""Both bits of the field."""
_NOT_FOR_CONSUMERS: Final = (int(SysFlag.TRANSACTION_PREPARED), int(SysFlag.TRANSACTION_ROLLBACK))
_LEVEL: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)


class BrokerMarks(msgspec.Struct, frozen=True):
    """What this broker adds to every message."""

    cluster: str
    region: str
    trace_on: bool
    delay_levels: int
    """Messages with a higher level get this one."""

    def pairs(self) -> dict[str, str]:
        """The properties by name."""
        return {MSG_REGION: self.region, TRACE_ON: "true" if self.trace_on else "false", CLUSTER: self.cluster}


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """A message ready to be stored."""

    topic: bytes
    queue_id: int
    properties: bytes
    unique_key: str | None
    wait: bool
    """False: the producer does not want to wait for copies (WAIT=false)."""


class Completer:
    """Completes messages for one broker."""

    def __init__(self, marks: BrokerMarks) -> None:
        self._marks = marks
        self._pairs = marks.pairs()
        self._suffix = format_properties(self._pairs)

    def complete(
        self, topic: bytes, queue_id: int, properties: str, new_unique_key: Callable[[], str] | None
    ) -> Outgoing:
        """The message under its final topic, queue and properties.

        `new_unique_key`: makes one for a message that has none; None leaves it without (a batch's own properties).

        Raises:
            RequestRefusedError: transactions and timers, which this broker lacks; properties that cannot be stored.
        """
        raw = properties.encode("utf-8", "replace")
        # the stored bytes decide, and only for ASCII they equal the text
        pairs = split_properties(properties) if properties.isascii() else parse_properties(raw)
        unique_key = pairs.get(UNIQ_KEY)
        if unique_key is None and new_unique_key is not None:
            pairs[UNIQ_KEY] = unique_key = new_unique_key()
            topic, queue_id = self._rewrite(topic, queue_id, pairs)
            raw = self._format(pairs)
        elif not _SPECIAL.isdisjoint(pairs):
            topic, queue_id = self._rewrite(topic, queue_id, pairs)
            raw = self._format(pairs)
        elif not raw or raw[-1] == 2:
            raw += self._suffix
        else:
            raw = b"%b\x02%b" % (raw, self._suffix)
        if len(raw) > MAX_PROPERTIES:
            raise too_long(len(raw))
        return Outgoing(topic, queue_id, raw, unique_key, pairs.get(WAIT, "true").lower() == "true")

    def complete_dead_letter(
        self, topic: bytes, queue_id: int, properties: str, new_unique_key: Callable[[], str]
    ) -> Outgoing:
        """`complete` for a dead letter, without the delay of its retries. Raises the same."""
        pairs = parse_properties(properties.encode("utf-8", "replace"))
        for name in _TIMER:
            pairs.pop(name, None)
        pairs[DELAY] = "-1"  # as in Java
        return self.complete(topic, queue_id, self._format(pairs).decode(), new_unique_key)

    def _rewrite(self, topic: bytes, queue_id: int, pairs: dict[str, str]) -> tuple[bytes, int]:
        """Change `pairs` to what is stored; the topic and queue to store it under."""
        pairs.pop(POP_CK, None)
        if pairs.get(TRANSACTION_PREPARED, "false").lower() == "true":
            raise _half_message()
        level = _delay_level(pairs.get(DELAY))
        if level > 0:
            # a level beats a time, as in Java
            for name in _TIMER:
                pairs.pop(name, None)
            level = min(level, self._marks.delay_levels)
            pairs[DELAY] = str(level)
            pairs[REAL_TOPIC] = topic.decode()
            pairs[REAL_QUEUE_ID] = str(queue_id)
            topic, queue_id = SCHEDULE_TOPIC.encode(), level - 1
        elif not _TIMER.isdisjoint(pairs):
            remark = (
                "accurate timer message is not enabled, timerWheelEnable is false: this broker has no delays of any "
                "length, use delay levels"
            )
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)
        pairs.update(self._pairs)
        return topic, queue_id

    def _format(self, pairs: dict[str, str]) -> bytes:
        try:
            return format_properties(pairs)
        except FormatError as error:
            raise RequestRefusedError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error


def check_in_batch(properties: bytes) -> None:
    """Of one message of a batch: what would need a place of its own cannot be in a batch.

    A batch is stored as it is, so such a message would reach consumers at once. Java's client makes no such batch, and
    its broker does not look. Source: rocketmq-all-5.3.3: SendMessageProcessor.java.

    Raises:
        RequestRefusedError: a delayed message, a timer, or a transaction.
    """
    for name in _DELAYS:
        if (value := find_property(properties, name)) is not None and (name != DELAY or _delay_level(value) > 0):
            remark = f"batch request does not support delayed messages: {name}={value[:80]}"
            raise RequestRefusedError(ResponseCode.MESSAGE_ILLEGAL, remark)
    if (find_property(properties, TRANSACTION_PREPARED) or "false").lower() == "true":
        raise RequestRefusedError(ResponseCode.MESSAGE_ILLEGAL, "batch request does not support transactions")


def sent_flags(sys_flag: int) -> int:
    """`stored_flags` of a producer's.

    Raises:
        RequestRefusedError: also a half message, or one that was rolled back. It has the property TRAN_MSG, too, unless
            another layer dropped it, but must not reach consumers in any case.
    """
    if sys_flag & _TRANSACTION in _NOT_FOR_CONSUMERS:
        raise _half_message()
    return stored_flags(sys_flag)


def _half_message() -> RequestRefusedError:
    return RequestRefusedError(ResponseCode.NO_PERMISSION, "transaction messages are not supported by this broker")


def stored_flags(sys_flag: int) -> int:
    """The sysFlag that a message is stored with, of the one that came from a client or another record.

    The broker sets everything else: the property TRAN_MSG makes a transaction, as in Java
    (rocketmq-all-5.3.3: SendMessageProcessor.java); the store sets the hosts' address families.

    Raises:
        RequestRefusedError: several messages in one record, which this broker's queues would count as one.
    """
    if sys_flag & _INNER_BATCH:
        remark = f"the message is illegal: sysFlag {sys_flag & 0xFFFFFFFF:#x} is an inner batch, not supported here"
        raise RequestRefusedError(ResponseCode.MESSAGE_ILLEGAL, remark)
    return sys_flag & _CLIENTS_FLAGS


def too_long(size: int) -> RequestRefusedError:
    """Properties of `size` bytes do not fit a record."""
    return RequestRefusedError(
        ResponseCode.MESSAGE_ILLEGAL,
        f"the message is illegal: msg properties of {size} bytes, the length limit is {MAX_PROPERTIES} bytes",
    )


def _delay_level(text: str | None) -> int:
    """The requested level, 0 without one.

    Raises:
        RequestRefusedError: not an int of Java; an official broker could not recover a record with such a level.
    """
    if text is None:
        return 0
    if not _LEVEL.fullmatch(text) or not -(2**31) <= int(text) < 2**31:
        raise RequestRefusedError(
            ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {DELAY} is not a delay level: {text[:80]!r}"
        )
    return int(text)
