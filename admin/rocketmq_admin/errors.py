"""What can go wrong with a command, with its exit code. `__main__` prints each as one line on standard error."""

from rocketmq_formats.remoting.codes import ResponseCode
from rocketmq_runtime.terminal import ToolError


class AdminError(ToolError):
    """A command, or its part for one address, that did not do what was asked."""


class RefusedError(AdminError):
    """The cluster answered with another code than success, or knows nothing of what was named."""


class WrongUsageError(AdminError):
    """Arguments that make no sense together; found before anything was sent."""

    exit_code = 2


class UnreachableError(AdminError):
    """Nobody answered in time, or no controller leads."""

    exit_code = 3


def refusal(address: str, code: int, remark: str | None) -> RefusedError:
    """The error for an answer with `code`; `CODE: n  DESC: remark` is how mqadmin says it, for who looks for that."""
    name = ResponseCode(code).name if code in set(ResponseCode) else "unknown code"
    return RefusedError(f"{address} refused: {name}: CODE: {code}  DESC: {remark or ''}".rstrip())
