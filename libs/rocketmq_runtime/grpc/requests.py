"""Checks before a service sees an rpc: whether its host has too many open already (RESOURCE_EXHAUSTED), and
whether its requests are protobuf messages at all (INVALID_ARGUMENT, and a line in the log once in a while). Used by
`grpc_server`.

gRPC's own way is UNKNOWN and a traceback each, which lets anybody who reaches the port fill the log.
"""

import inspect
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
import structlog
from google.protobuf.message import DecodeError
from grpc import aio

from rocketmq_runtime.grpc.host_quota import HostQuota, QuotaExceededError
from rocketmq_runtime.log_limiter import LogLimiter

log = structlog.get_logger(__name__)

LOG_SECONDS: Final = 10.0

Context = aio.ServicerContext[Any, Any]


class _Garbled:
    """Stands for a request that did not decode."""


_GARBLED: Final = _Garbled()


class GuardRequests(aio.ServerInterceptor):
    def __init__(self, *, max_rpcs_of_host: int) -> None:
        self._may_log = LogLimiter(time.monotonic, LOG_SECONDS)
        self.quota = HostQuota(max_rpcs_of_host)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """The rpc's handler, with requests checked before it sees them."""
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_deserializer is None:
            return handler
        method = str(handler_call_details.method)
        decode = _tolerant(handler.request_deserializer)
        encode = handler.response_serializer
        if handler.unary_unary is not None:
            behavior = self._checked(handler.unary_unary, method)
            return grpc.unary_unary_rpc_method_handler(behavior, decode, encode)
        if handler.unary_stream is not None:
            behavior = self._checked(handler.unary_stream, method)
            return grpc.unary_stream_rpc_method_handler(behavior, decode, encode)
        if handler.stream_stream is not None:
            behavior = self._checked_stream(handler.stream_stream, method)
            return grpc.stream_stream_rpc_method_handler(behavior, decode, encode)
        behavior = self._checked_stream(handler.stream_unary, method)
        return grpc.stream_unary_rpc_method_handler(behavior, decode, encode)

    @asynccontextmanager
    async def _share(self, method: str, context: Context) -> AsyncGenerator[None]:
        try:
            host = self.quota.acquire(context.peer())
        except QuotaExceededError as error:
            if self._may_log("share"):
                log.warning("gRPC request refused", method=method, peer=context.peer(), reason=str(error))
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        try:
            yield
        finally:
            self.quota.release(host)

    async def _refuse(self, method: str, context: Context) -> None:
        if self._may_log(method):
            log.warning("gRPC request refused: it is not a message of this rpc", method=method, peer=context.peer())
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request is no message of this rpc")

    def _checked(self, behavior: Callable[[Any, Context], Any], method: str) -> Callable[[Any, Context], Any]:
        async def stream(request: object, context: Context) -> AsyncIterator[Any]:
            async with self._share(method, context):
                if request is _GARBLED:
                    await self._refuse(method, context)
                async for answer in behavior(request, context):
                    yield answer

        async def once(request: object, context: Context) -> object:
            async with self._share(method, context):
                if request is _GARBLED:
                    await self._refuse(method, context)
                return await behavior(request, context)

        return stream if inspect.isasyncgenfunction(behavior) else once

    def _checked_stream(self, behavior: Callable[[Any, Context], Any], method: str) -> Callable[[Any, Context], Any]:
        async def requests(iterator: AsyncIterator[object], context: Context) -> AsyncIterator[object]:
            async for request in iterator:
                if request is _GARBLED:
                    await self._refuse(method, context)
                yield request

        async def stream(iterator: AsyncIterator[object], context: Context) -> AsyncIterator[Any]:
            async with self._share(method, context):
                async for answer in behavior(requests(iterator, context), context):
                    yield answer

        async def once(iterator: AsyncIterator[object], context: Context) -> object:
            async with self._share(method, context):
                return await behavior(requests(iterator, context), context)

        return stream if inspect.isasyncgenfunction(behavior) else once


def _tolerant(decode: Callable[[bytes], object]) -> Callable[[bytes], object]:
    def tolerant(data: bytes) -> object:
        try:
            return decode(data)
        except DecodeError:
            return _GARBLED

    return tolerant
