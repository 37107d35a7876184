"""The error with which a processor refuses a request; `processor_table.py` turns it into the answer."""

from rocketmq_formats.codes import ResponseCode


class RequestRefusedError(Exception):
    """A request that is answered with an error: `code`, and the text as remark."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
