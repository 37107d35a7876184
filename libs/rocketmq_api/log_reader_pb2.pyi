from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetLogRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetLogResponse(_message.Message):
    __slots__ = ("log",)
    LOG_FIELD_NUMBER: _ClassVar[int]
    log: Log
    def __init__(self, log: _Optional[_Union[Log, _Mapping]] = ...) -> None: ...

class Log(_message.Message):
    __slots__ = ("cluster_name", "broker_name", "broker_id", "master", "master_epoch", "min_offset", "confirm_offset", "max_offset", "segment_size", "segments", "epochs", "strict", "short_files", "given_up")
    CLUSTER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    MASTER_FIELD_NUMBER: _ClassVar[int]
    MASTER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_SIZE_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    SHORT_FILES_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    cluster_name: str
    broker_name: str
    broker_id: int
    master: bool
    master_epoch: int
    min_offset: int
    confirm_offset: int
    max_offset: int
    segment_size: int
    segments: _containers.RepeatedCompositeFieldContainer[SegmentRun]
    epochs: _containers.RepeatedCompositeFieldContainer[EpochStart]
    strict: bool
    short_files: _containers.RepeatedCompositeFieldContainer[ShortFile]
    given_up: _containers.RepeatedCompositeFieldContainer[GivenUp]
    def __init__(self, cluster_name: _Optional[str] = ..., broker_name: _Optional[str] = ..., broker_id: _Optional[int] = ..., master: _Optional[bool] = ..., master_epoch: _Optional[int] = ..., min_offset: _Optional[int] = ..., confirm_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., segment_size: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[SegmentRun, _Mapping]]] = ..., epochs: _Optional[_Iterable[_Union[EpochStart, _Mapping]]] = ..., strict: _Optional[bool] = ..., short_files: _Optional[_Iterable[_Union[ShortFile, _Mapping]]] = ..., given_up: _Optional[_Iterable[_Union[GivenUp, _Mapping]]] = ...) -> None: ...

class GivenUp(_message.Message):
    __slots__ = ("start", "end", "epoch", "at_millis")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    AT_MILLIS_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    epoch: int
    at_millis: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., epoch: _Optional[int] = ..., at_millis: _Optional[int] = ...) -> None: ...

class ShortFile(_message.Message):
    __slots__ = ("start", "length")
    START_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    start: int
    length: int
    def __init__(self, start: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class SegmentRun(_message.Message):
    __slots__ = ("start", "count")
    START_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    start: int
    count: int
    def __init__(self, start: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class EpochStart(_message.Message):
    __slots__ = ("epoch", "start_offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    start_offset: int
    def __init__(self, epoch: _Optional[int] = ..., start_offset: _Optional[int] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("offset", "length")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    offset: int
    length: int
    def __init__(self, offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class DigestRequest(_message.Message):
    __slots__ = ("ranges", "bytes_per_second")
    RANGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[Range]
    bytes_per_second: int
    def __init__(self, ranges: _Optional[_Iterable[_Union[Range, _Mapping]]] = ..., bytes_per_second: _Optional[int] = ...) -> None: ...

class DigestResponse(_message.Message):
    __slots__ = ("digests",)
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    digests: _containers.RepeatedCompositeFieldContainer[RangeDigest]
    def __init__(self, digests: _Optional[_Iterable[_Union[RangeDigest, _Mapping]]] = ...) -> None: ...

class RangeDigest(_message.Message):
    __slots__ = ("xxh3_128",)
    XXH3_128_FIELD_NUMBER: _ClassVar[int]
    xxh3_128: bytes
    def __init__(self, xxh3_128: _Optional[bytes] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("offset", "length")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    offset: int
    length: int
    def __init__(self, offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class CheckRequest(_message.Message):
    __slots__ = ("range", "until", "structure", "queues", "bytes_per_second")
    RANGE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    STRUCTURE_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    range: Range
    until: int
    structure: bool
    queues: bool
    bytes_per_second: int
    def __init__(self, range: _Optional[_Union[Range, _Mapping]] = ..., until: _Optional[int] = ..., structure: _Optional[bool] = ..., queues: _Optional[bool] = ..., bytes_per_second: _Optional[int] = ...) -> None: ...

class CheckResponse(_message.Message):
    __slots__ = ("structure", "queues", "indexes")
    STRUCTURE_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    structure: bytes
    queues: _containers.RepeatedScalarFieldContainer[bytes]
    indexes: bytes
    def __init__(self, structure: _Optional[bytes] = ..., queues: _Optional[_Iterable[bytes]] = ..., indexes: _Optional[bytes] = ...) -> None: ...
