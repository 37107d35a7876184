"""The client's errors; every text says what was tried and what is known."""

from rocketmq_formats.codes import ResponseCode


class ClientError(Exception):
    """Base of this package's errors."""


class NameServerError(ClientError):
    """No name server gave an answer; the text says why for each."""


class TopicNotFoundError(ClientError):
    """A name server answered that it has no route of this topic."""


class SendError(ClientError):
    """A send that was not acknowledged in all its attempts.

    `code` is the last refusal's, None where the last attempt got no answer. `maybe_stored` is False only if it is
    certain that no attempt stored the message.
    """

    def __init__(self, what: str, *, code: int | None, attempts: int, maybe_stored: bool) -> None:
        super().__init__(f"{what}, after {attempts} attempts")
        self.code = code
        self.attempts = attempts
        self.maybe_stored = maybe_stored


class AnswerError(ClientError):
    """A broker refused a request, or answered what makes no sense; `code` as in `ResponseCode`."""

    def __init__(self, address: str, what: str, code: int, remark: str | None) -> None:
        super().__init__(f"{address} answered {what} with {describe(code)}: {remark or 'no remark'}")
        self.code = code


def describe(code: int) -> str:
    """A response code's number and name."""
    try:
        return f"{code} {ResponseCode(code).name}"
    except ValueError:
        return f"{code}, an unknown code"
