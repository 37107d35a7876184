"""Reads the replicas from the driver: what they hold, and the few small reads that narrow a difference down. For `job`.

All replicas are read at the same time, each by one thread. A replica that fails is remembered with the reason and never
read again. Threads are daemons and waits are short, so that Ctrl-C ends a run whatever a replica does.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Generic, TypeVar

from rocketmq_verify.domain.model import Chunk, ReadRequest, ReplicaLog, ReplicaName
from rocketmq_verify.sources.open_source import open_source
from rocketmq_verify.sources.source import (
    MOST_UNREADABLE,
    BrokenError,
    GoneError,
    Source,
    SourceError,
    SourceOptions,
    SpecError,
)
from rocketmq_verify.sources.work import Place

T = TypeVar("T")
K = TypeVar("K")
DIGEST_COST: Final = 40
"""About the bytes that a digest takes on the wire, request and answer."""
_TICK: Final = 0.2


class _Call(threading.Thread, Generic[T]):
    def __init__(self, function: Callable[[], T]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self.result: T | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self._function()
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            self.error = error


def in_parallel(functions: Mapping[K, Callable[[], T]]) -> dict[K, T | BaseException]:
    """What each returned or raised; all are started at once, there are as many as replicas."""
    calls = {key: _Call(function) for key, function in functions.items()}
    for call in calls.values():
        call.start()
    for call in calls.values():
        while call.is_alive():
            call.join(_TICK)
    return {key: call.error if call.error is not None else call.result for key, call in calls.items()}  # type: ignore[misc]  # a result of None is one


class Replicas:
    """The sources of all replicas, open during the run."""

    def __init__(self, places: Sequence[Place], options: SourceOptions) -> None:
        """Raises `SpecError`."""
        self._sources: dict[ReplicaName, Source] = {}
        self.failed: dict[ReplicaName, str] = {}
        """Replicas that could not be read, and why."""
        self._described = False
        self._broken: dict[ReplicaName, int] = {}
        self.travelled = 0
        """Bytes requested from sidecars."""
        self._remote = frozenset(place.name for place in places if not place.has_files)
        try:
            for place in places:
                self._sources[place.name] = open_source(place.name, place.spec, options)
        except BaseException:
            self.close()
            raise

    def describe(self) -> list[ReplicaLog]:
        """The log of every replica that can be read, as it is now.

        Raises:
            SpecError: a place has no log, at the first call.
        """
        found = in_parallel({name: source.describe for name, source in self._readable().items()})
        logs = []
        for name, log in found.items():
            if isinstance(log, SourceError):
                self.failed[name] = log.reason
            elif isinstance(log, SpecError) and self._described:
                self.failed[name] = f"it is no longer there: {log}"
            elif isinstance(log, BaseException):
                raise log
            else:
                logs.append(log)
        self._described = True
        return logs

    def answer(self, requests: tuple[ReadRequest, ...]) -> list[bytes | None]:
        """An answer for each request, in their order; see `ReadRequest`."""
        by_replica: dict[ReplicaName, list[int]] = {}
        for index, request in enumerate(requests):
            by_replica.setdefault(request.replica, []).append(index)
        answers: list[bytes | None] = [None] * len(requests)
        readable = self._readable()

        def read_all(name: ReplicaName, indexes: list[int]) -> None:
            source = readable[name]
            digests = [index for index in indexes if requests[index].digest]
            chunks = [Chunk(requests[index].extent.start, requests[index].extent.length, -1) for index in digests]
            for index, digest in zip(digests, source.digests(chunks), strict=True):
                answers[index] = digest.digest
            for index in indexes:
                if not requests[index].digest:
                    with suppress(GoneError), self._bounded(name):
                        answers[index] = source.read(requests[index].extent)

        def reading(name: ReplicaName, indexes: list[int]) -> Callable[[], None]:
            return lambda: read_all(name, indexes)

        calls = {name: reading(name, indexes) for name, indexes in by_replica.items() if name in readable}
        self.travelled += sum(
            DIGEST_COST if request.digest else request.extent.length
            for request in requests
            if request.replica in self._remote
        )
        for name, error in in_parallel(calls).items():
            if isinstance(error, SourceError):
                self.failed[name] = error.reason
            elif error is not None:
                raise error
        return answers

    @contextmanager
    def _bounded(self, name: ReplicaName) -> Iterator[None]:
        """Bytes that a disk does not return count as not there, up to `MOST_UNREADABLE` reads."""
        try:
            yield
        except BrokenError:
            self._broken[name] = self._broken.get(name, 0) + 1
            if self._broken[name] > MOST_UNREADABLE:
                raise

    def close(self) -> None:
        """Close files and connections."""
        for source in self._sources.values():
            source.close()

    def _readable(self) -> dict[ReplicaName, Source]:
        return {name: source for name, source in self._sources.items() if name not in self.failed}
