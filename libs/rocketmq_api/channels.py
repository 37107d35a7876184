"""Calls to our gRPC services: channels with or without mutual TLS, and one set of errors for all statuses.

Used by `sidecars`, `log_readers` and `controllers`. Every call has a deadline and is made once: whether to repeat it is
the decision of the caller, which can tell whether a change may have been made already.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import grpc
from grpc import aio

from rocketmq_api.client_tls import ClientTls

OLDER = "this process does not know this call: it is of an earlier release, upgrade it, or does not offer that"
"""Instead of gRPC's `Method not found!`."""

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Limit of a message in both directions, as in the servers."""

OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),  # members and replicas are neighbours
    ("grpc.use_local_subchannel_pool", 1),  # closing a client closes its connection
    # The servers allow a ping each 10 s; a watch over a connection that is gone ends after 20 s.
    ("grpc.keepalive_time_ms", 15_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Also what a connection may take to be made: a port-forward across the world, a process that waits for its CPU.
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)

T = TypeVar("T")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class ApiError(Exception):
    """A call to one of our services failed; the text names the address and the reason."""

    def __init__(self, address: str, status: grpc.StatusCode, reason: str, metadata: Mapping[str, str]) -> None:
        super().__init__(f"{address}: {reason or status.name}")
        self.address = address
        self.status = status
        self.reason = reason
        """The status message of the server."""
        self.metadata = metadata
        """Text values of the trailing metadata; controllers send `rocketmq-code` and `rocketmq-leader`."""


class NoAnswerError(ApiError):
    """Not reached, or no answer in time: unknown whether a change was made. Check, then retry."""


class RefusedError(ApiError):
    """Refused: nothing was changed, and the reason says what to do."""


class AbortedError(ApiError):
    """The change failed, or it is unknown whether it took effect: see the reason. Check, then retry."""


_NO_ANSWER = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})
_REFUSED = frozenset(
    {
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)


def open_channel(address: str, tls: ClientTls | None) -> aio.Channel:
    """A channel to `host:port`; nothing is connected before the first call. Needs a running event loop.

    Raises:
        OSError: a TLS file cannot be read.
    """
    if tls is None:
        return aio.insecure_channel(address, OPTIONS)
    return aio.secure_channel(address, _credentials(tls), (*OPTIONS, *_override(tls)))


def open_blocking_channel(address: str, tls: ClientTls | None) -> grpc.Channel:
    """Like `open_channel`, for callers without an event loop. Raises `OSError`."""
    if tls is None:
        return grpc.insecure_channel(address, OPTIONS)
    return grpc.secure_channel(address, _credentials(tls), (*OPTIONS, *_override(tls)))


class Client(ABC):
    """What is connected until `close`; `async with` closes it."""

    @abstractmethod
    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class SidecarChannel(Client):
    """The channel of a client of one sidecar; it connects at the first call."""

    def __init__(self, address: str, tls: ClientTls | None = None) -> None:
        """
        Args:
            address: `host:port` of its gRPC port (10920).
            tls: files for mutual TLS; None: plaintext.

        Raises:
            OSError: a TLS file cannot be read.
        """
        self.address = address
        self._channel = open_channel(address, tls)

    async def close(self) -> None:
        """Cancel running calls and disconnect."""
        await self._channel.close()


def _credentials(tls: ClientTls) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        root_certificates=Path(tls.ca_file).read_bytes(),
        private_key=Path(tls.key_file).read_bytes(),
        certificate_chain=Path(tls.cert_file).read_bytes(),
    )


def _override(tls: ClientTls) -> tuple[tuple[str, str], ...]:
    return (("grpc.ssl_target_name_override", tls.server_name),) if tls.server_name else ()


def error_of(address: str, error: aio.AioRpcError) -> ApiError:
    """The typed error for a status."""
    return _error(address, error.code(), error.details(), error.trailing_metadata() or ())


def _error(
    address: str, status: grpc.StatusCode, details: str | None, pairs: Iterable[tuple[str, str | bytes]]
) -> ApiError:
    kind: type[ApiError] = AbortedError
    if status is grpc.StatusCode.UNIMPLEMENTED:
        details = f"{OLDER} ({details})"
    if status in _NO_ANSWER:
        kind = NoAnswerError
    elif status in _REFUSED:
        kind = RefusedError
    metadata = {key: value for key, value in pairs if isinstance(value, str)}
    return kind(address, status, details or "", metadata)


async def call(address: str, answer: Awaitable[T]) -> T:
    """The answer of a call that was made with a deadline.

    Raises:
        ApiError: one of its kinds.
    """
    async with typed_errors(address):
        return await answer


@contextmanager
def blocking_errors(address: str) -> Iterator[None]:
    """The same around calls over an `open_blocking_channel`, and around streams that are read."""
    try:
        yield
    except grpc.RpcError as error:
        pairs = [(entry.key, entry.value) for entry in error.trailing_metadata() or ()]
        raise _error(address, error.code(), error.details(), pairs) from error
    except ValueError as error:  # gRPC raises this when the channel was closed
        raise NoAnswerError(address, grpc.StatusCode.CANCELLED, str(error), {}) from error


@asynccontextmanager
async def typed_errors(address: str) -> AsyncIterator[None]:
    """The same around a stream that is being read."""
    try:
        yield
    except aio.AioRpcError as error:
        raise error_of(address, error) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # gRPC raises this when the channel is closed, although this task was not cancelled.
        raise NoAnswerError(address, grpc.StatusCode.CANCELLED, "the connection was closed here", {}) from error
