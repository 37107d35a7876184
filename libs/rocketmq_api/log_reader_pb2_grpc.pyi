# Made by hack/proto.py from rocketmq_api/log_reader.proto: do not edit
from collections.abc import AsyncIterator, Awaitable

from grpc import aio

from rocketmq_api import log_reader_pb2 as _pb2

class LogReaderStub:
    def __init__(self, channel: aio.Channel) -> None: ...
    GetLog: aio.UnaryUnaryMultiCallable[_pb2.GetLogRequest, _pb2.GetLogResponse]
    Digest: aio.UnaryStreamMultiCallable[_pb2.DigestRequest, _pb2.DigestResponse]
    Read: aio.UnaryStreamMultiCallable[_pb2.ReadRequest, _pb2.ReadResponse]

class LogReaderServicer:
    def GetLog(
        self, request: _pb2.GetLogRequest, context: aio.ServicerContext[_pb2.GetLogRequest, _pb2.GetLogResponse]
    ) -> Awaitable[_pb2.GetLogResponse]: ...
    def Digest(
        self, request: _pb2.DigestRequest, context: aio.ServicerContext[_pb2.DigestRequest, _pb2.DigestResponse]
    ) -> AsyncIterator[_pb2.DigestResponse] | Awaitable[None]: ...
    def Read(
        self, request: _pb2.ReadRequest, context: aio.ServicerContext[_pb2.ReadRequest, _pb2.ReadResponse]
    ) -> AsyncIterator[_pb2.ReadResponse] | Awaitable[None]: ...

def add_LogReaderServicer_to_server(servicer: LogReaderServicer, server: aio.Server) -> None: ...
