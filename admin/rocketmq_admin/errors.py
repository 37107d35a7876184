"""The errors of a command, with their exit codes. `__main__` prints each as one line on standard error."""

from rocketmq_formats.codes import ResponseCode
from rocketmq_runtime.terminal import ToolError


class AdminError(ToolError):
    """A command, or its part for one address, that did not do what was asked."""


class ClusterRefusedError(AdminError):
    """The cluster answered with another code than success, or does not have what was named."""


class WrongUsageError(AdminError):
    """Arguments that make no sense together; found before anything was sent."""

    exit_code = 2


class UnreachableError(AdminError):
    """No process answered in time, or no controller leads."""

    exit_code = 3


def refusal(address: str, code: int, remark: str | None) -> ClusterRefusedError:
    """The error for an answer with `code`; `CODE: n  DESC: remark` is how mqadmin prints it, so that searches find
    it."""
    name = ResponseCode(code).name if code in set(ResponseCode) else "unknown code"
    return ClusterRefusedError(f"{address} refused: {name}: CODE: {code}  DESC: {remark or ''}".rstrip())
