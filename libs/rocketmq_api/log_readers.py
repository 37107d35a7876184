"""Calls to LogReader of one replica's sidecar (log_reader.proto): with an event loop, and without one for the workers
of Spark, who are plain processes. Used by the verification.

Both ask the same and answer in the same values. Nothing is tried again here. A Digest may end before every range is
answered (see the .proto): compare how many digests came.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Final

import grpc
import msgspec

from rocketmq_api import log_reader_pb2 as pb
from rocketmq_api.channels import (
    ApiError,
    SidecarChannel,
    blocking_errors,
    call,
    open_blocking_channel,
    typed_errors,
)
from rocketmq_api.client_tls import ClientTls
from rocketmq_api.log_reader_pb2_grpc import LogReaderStub
from rocketmq_api.log_view import DIGEST_SIZE, MAX_CHECK, MAX_GIVEN_UP, MAX_SEGMENTS, LogView, SegmentRun

TIMEOUT: Final = 30.0
"""Seconds for GetLog, which may walk from the confirm offset to the log's end, and for Read."""
DIGEST_TIMEOUT: Final = 120.0
"""Seconds for Digest, which ends by itself after some 10 of them, or one range."""

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["LogReader"].full_name


class Range(msgspec.Struct, frozen=True):
    """What to digest, in bytes of the log."""

    offset: int
    length: int


class Checks(msgspec.Struct, frozen=True):
    """The answer of Check as it came: JSON, see log_reader.proto."""

    structure: bytes
    queues: tuple[bytes, ...]
    indexes: bytes = b""


class BadAnswerError(ApiError):
    """An impossible answer: another release, or a bug."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, grpc.StatusCode.INTERNAL, reason, {})


class LogReaderClient(SidecarChannel):
    """One sidecar. Calls raise `rocketmq_api.channels.ApiError`, one of its kinds."""

    def __init__(self, address: str, *, tls: ClientTls | None = None) -> None:
        """As `SidecarChannel`."""
        super().__init__(address, tls)
        self._stub = LogReaderStub(self._channel)

    async def get_log(self, *, timeout: float = TIMEOUT) -> LogView:  # noqa: ASYNC109 - gRPC's own deadline
        """The current state of the log."""
        answer = await call(self.address, self._stub.GetLog(pb.GetLogRequest(), timeout=timeout))
        return view_of(self.address, answer.log)

    async def digest(
        self,
        ranges: Sequence[Range],
        *,
        bytes_per_second: int = 0,
        timeout: float = DIGEST_TIMEOUT,  # noqa: ASYNC109
    ) -> AsyncGenerator[bytes | None]:
        """Digests in the order of the request; None: the log does not have the bytes. `bytes_per_second` 0: the
        sidecar's limit. The call ends when the iterator does."""
        async with typed_errors(self.address):
            answers = self._stub.Digest(_digest(ranges, bytes_per_second), timeout=timeout)
            try:
                async for answer in answers:
                    for digest in answer.digests:
                        yield _digest_of(self.address, digest)
            finally:
                answers.cancel()  # gRPC would continue

    async def read(self, offset: int, length: int, *, timeout: float = TIMEOUT) -> bytes:  # noqa: ASYNC109
        """Those bytes; `RefusedError` with NOT_FOUND if the log does not have them."""
        data = bytearray()
        async with typed_errors(self.address):
            async for answer in self._stub.Read(pb.ReadRequest(offset=offset, length=length), timeout=timeout):
                data += answer.data
        return _all(self.address, data, length)


class BlockingLogReader:
    """`LogReaderClient` for callers without an event loop. Thread-safe."""

    def __init__(self, address: str, *, tls: ClientTls | None = None) -> None:
        self.address = address
        self._channel = channel = open_blocking_channel(address, tls)
        self._get_log = channel.unary_unary(
            f"/{_SERVICE}/GetLog",
            request_serializer=pb.GetLogRequest.SerializeToString,
            response_deserializer=pb.GetLogResponse.FromString,
        )
        self._digest = channel.unary_stream(
            f"/{_SERVICE}/Digest",
            request_serializer=pb.DigestRequest.SerializeToString,
            response_deserializer=pb.DigestResponse.FromString,
        )
        self._read = channel.unary_stream(
            f"/{_SERVICE}/Read",
            request_serializer=pb.ReadRequest.SerializeToString,
            response_deserializer=pb.ReadResponse.FromString,
        )
        self._check = channel.unary_stream(
            f"/{_SERVICE}/Check",
            request_serializer=pb.CheckRequest.SerializeToString,
            response_deserializer=pb.CheckResponse.FromString,
        )

    def get_log(self, *, timeout: float = TIMEOUT) -> LogView:
        with blocking_errors(self.address):
            answer = self._get_log(pb.GetLogRequest(), timeout=timeout)
        return view_of(self.address, answer.log)

    def digest(
        self, ranges: Sequence[Range], *, bytes_per_second: int = 0, timeout: float = DIGEST_TIMEOUT
    ) -> Iterator[bytes | None]:
        """See `LogReaderClient`; the call ends when the iterator does."""
        with blocking_errors(self.address):
            answers = self._digest(_digest(ranges, bytes_per_second), timeout=timeout)
            try:
                for answer in answers:
                    for digest in answer.digests:
                        yield _digest_of(self.address, digest)
            finally:
                answers.cancel()

    def read(self, offset: int, length: int, *, timeout: float = TIMEOUT) -> bytes:
        data = bytearray()
        with blocking_errors(self.address):
            for answer in self._read(pb.ReadRequest(offset=offset, length=length), timeout=timeout):
                data += answer.data
        return _all(self.address, data, length)

    def check(
        self,
        wanted: Range,
        until: int,
        *,
        structure: bool = False,
        queues: bool = False,
        bytes_per_second: int = 0,
        timeout: float = DIGEST_TIMEOUT,
    ) -> Checks:
        """Check a range of at most `MAX_CHECK` bytes; `RefusedError` with NOT_FOUND as the .proto says."""
        request = pb.CheckRequest(
            range=pb.Range(offset=wanted.offset, length=wanted.length),
            until=until,
            structure=structure,
            queues=queues,
            bytes_per_second=bytes_per_second,
        )
        found, states, indexes = b"", list[bytes](), b""
        with blocking_errors(self.address):
            for answer in self._check(request, timeout=timeout):
                found, indexes = found or answer.structure, indexes or answer.indexes
                states += answer.queues
                if len(states) > MAX_CHECK:
                    raise BadAnswerError(self.address, f"more than {MAX_CHECK} queues in one range")
        return Checks(found, tuple(states), indexes)

    def close(self) -> None:
        """Cancel running calls and disconnect."""
        self._channel.close()


def view_of(address: str, log: pb.Log) -> LogView:
    """A message as a plain value.

    Raises:
        BadAnswerError: files or offsets that cannot be.
    """
    if log.segments and (
        log.segment_size < 1
        or not all(0 <= run.start < 2**63 and 1 <= run.count <= MAX_SEGMENTS for run in log.segments)
        or sum(run.count for run in log.segments) > MAX_SEGMENTS
    ):
        raise BadAnswerError(address, f"{len(log.segments)} rows of files of {log.segment_size} bytes cannot be")
    if not all(0 <= file.start < 2**63 and 0 <= file.length < log.segment_size for file in log.short_files):
        raise BadAnswerError(address, f"files of {log.segment_size} bytes that end early cannot be as told")
    if min(log.min_offset, log.confirm_offset, log.max_offset, log.segment_size) < 0 or (
        log.max_offset - log.min_offset > MAX_SEGMENTS * log.segment_size
    ):
        raise BadAnswerError(
            address, f"a log from {log.min_offset} to {log.max_offset} in files of {log.segment_size} bytes cannot be"
        )
    if len(log.given_up) > MAX_GIVEN_UP or not all(
        0 <= one.start < one.end and one.epoch >= -1 and one.at_millis >= 0 for one in log.given_up
    ):
        raise BadAnswerError(address, f"{len(log.given_up)} losses cannot be as told")
    return LogView(
        cluster_name=log.cluster_name,
        broker_name=log.broker_name,
        broker_id=log.broker_id if log.HasField("broker_id") else None,
        master=log.master,
        master_epoch=log.master_epoch,
        min_offset=log.min_offset,
        confirm_offset=log.confirm_offset,
        max_offset=log.max_offset,
        segment_size=log.segment_size,
        segments=tuple(SegmentRun(run.start, run.count) for run in log.segments),
        epochs=tuple((epoch.epoch, epoch.start_offset) for epoch in log.epochs),
        strict=log.strict,
        short=tuple((file.start, file.length) for file in log.short_files),
        given_up=tuple((one.start, one.end, one.epoch, one.at_millis) for one in log.given_up),
    )


def _digest(ranges: Sequence[Range], bytes_per_second: int) -> pb.DigestRequest:
    return pb.DigestRequest(
        ranges=[pb.Range(offset=wanted.offset, length=wanted.length) for wanted in ranges],
        bytes_per_second=bytes_per_second,
    )


def _digest_of(address: str, digest: pb.RangeDigest) -> bytes | None:
    if digest.xxh3_128 and len(digest.xxh3_128) != DIGEST_SIZE:
        raise BadAnswerError(address, f"a digest of {len(digest.xxh3_128)} bytes")
    return digest.xxh3_128 or None


def _all(address: str, data: bytearray, length: int) -> bytes:
    if len(data) != length:
        raise BadAnswerError(address, f"{len(data)} bytes instead of {length}")
    return bytes(data)
