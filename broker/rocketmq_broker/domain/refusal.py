"""The error with which a processor refuses a request; `front.py` makes the answer of it."""

from rocketmq_formats.remoting.codes import ResponseCode


class RefusedError(Exception):
    """A request that is answered with an error; `code` and the text are what the client gets."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
