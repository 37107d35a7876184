"""Errors in bytes from outside; each has the remoting response code that answers it."""

from typing import ClassVar

from rocketmq_formats.codes import ResponseCode


class FormatError(Exception):
    """Bytes, a header or a body that break RocketMQ's formats. The peer's fault, never ours."""

    response_code: ClassVar[ResponseCode] = ResponseCode.SYSTEM_ERROR


class FrameError(FormatError):
    """The framing is broken: the connection has to be closed."""


class HeaderError(FormatError):
    """A request's header lacks a field or holds one of the wrong type; the connection stays usable."""


class BodyError(FormatError):
    """A request's body is not what its code calls for; the connection stays usable."""
