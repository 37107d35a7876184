"""One request to one process: the remoting client's errors and codes other than success become ours.

Used by `leader`, `controllers` and `brokers`; one `Caller` per run of the tool, all times bounded by its time-out.
"""

from rocketmq_admin.errors import ClusterRefusedError, UnreachableError, refusal
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.errors import FormatError
from rocketmq_formats.json.bodies import T, decode_body
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.remoting.headers import H, decode_header
from rocketmq_runtime.remoting.client import ConnectError, RemotingClient, RemotingError


class NotSentError(UnreachableError):
    """No connection: the request cannot have had an effect."""


class Caller:
    """Calls with one time-out, in seconds, for connecting and answering together."""

    def __init__(self, client: RemotingClient, timeout: float) -> None:
        self._client = client
        self.timeout = timeout

    async def call(self, address: str, request: RemotingCommand) -> RemotingCommand:
        """The answer, whatever its code.

        Raises:
            NotSentError: no connection to `address`.
            UnreachableError: no answer; whether the request took effect is unknown.
        """
        try:
            return await self._client.call(address, request, timeout=self.timeout)
        except ConnectError as error:
            raise NotSentError(str(error)) from error
        except RemotingError as error:
            raise UnreachableError(str(error)) from error

    async def call_checked(self, address: str, request: RemotingCommand) -> RemotingCommand:
        """The answer, if its code is success.

        Raises:
            ClusterRefusedError, UnreachableError: it is not, or see `call`.
        """
        return succeeded(address, await self.call(address, request))


def succeeded(address: str, answer: RemotingCommand) -> RemotingCommand:
    """`answer` itself, if its code is success.

    Raises:
        ClusterRefusedError: any other code.
    """
    if answer.code != ResponseCode.SUCCESS:
        raise refusal(address, answer.code, answer.remark)
    return answer


def read_header(address: str, header_type: type[H], answer: RemotingCommand) -> H:
    """The answer's typed header.

    Raises:
        ClusterRefusedError: it is not what the request calls for.
    """
    try:
        return decode_header(header_type, answer.ext_fields or {})
    except FormatError as error:
        raise ClusterRefusedError(f"{address} sent an answer that cannot be read: {error}") from error


def read_body(address: str, body_type: type[T], answer: RemotingCommand) -> T:
    """The answer's typed body.

    Raises:
        ClusterRefusedError: it is not what the request calls for.
    """
    try:
        return decode_body(body_type, answer.body)
    except FormatError as error:
        raise ClusterRefusedError(f"{address} sent an answer that cannot be read: {error}") from error
