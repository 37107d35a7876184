"""Asking the replicas from the driver: what they hold, and the few questions that narrow a difference down. For `job`.

All replicas are asked at the same time, each by one thread. A replica that cannot be read is remembered with the reason
and asked no more. Threads are daemons and waits are short, so that Ctrl-C ends a run whatever a replica does.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Generic, TypeVar

from rocketmq_verify.domain.model import Ask, Chunk, ReplicaLog, ReplicaName
from rocketmq_verify.sources import GoneError, Source, SourceError, SourceOptions, SpecError, open_source
from rocketmq_verify.work import Place

T = TypeVar("T")
K = TypeVar("K")
DIGEST_COST: Final = 40
"""Bytes that a digest takes on the wire, question and answer, about."""
_TICK: Final = 0.2


class _Call(threading.Thread, Generic[T]):
    def __init__(self, function: Callable[[], T]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self.result: T | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """See `threading.Thread`."""
        try:
            self.result = self._function()
        except BaseException as error:  # noqa: BLE001 - raised by whoever waits
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
    """The sources of all replicas, open as long as the run goes on."""

    def __init__(self, places: Sequence[Place], options: SourceOptions) -> None:
        """Raises `SpecError`."""
        self._sources: dict[ReplicaName, Source] = {}
        self.failed: dict[ReplicaName, str] = {}
        """Who could not be read, and why."""
        self._looked = False
        self.travelled = 0
        """Bytes that sidecars were asked for."""
        self._remote = frozenset(place.name for place in places if not place.has_files)
        try:
            for place in places:
                self._sources[place.name] = open_source(place.name, place.spec, options)
        except BaseException:
            self.close()
            raise

    def look(self) -> list[ReplicaLog]:
        """What every replica that can be read holds now.

        Raises:
            SpecError: a place is none, at the first look.
        """
        found = in_parallel({name: source.describe for name, source in self._readable().items()})
        logs = []
        for name, log in found.items():
            if isinstance(log, SourceError):
                self.failed[name] = log.reason
            elif isinstance(log, SpecError) and self._looked:
                self.failed[name] = f"it was there and is not any more: {log}"
            elif isinstance(log, BaseException):
                raise log
            else:
                logs.append(log)
        self._looked = True
        return logs

    def answer(self, asks: tuple[Ask, ...]) -> list[bytes | None]:
        """An answer for each question, in their order; see `Ask`."""
        by_replica: dict[ReplicaName, list[int]] = {}
        for index, ask in enumerate(asks):
            by_replica.setdefault(ask.replica, []).append(index)
        answers: list[bytes | None] = [None] * len(asks)
        readable = self._readable()

        def ask_one(name: ReplicaName, indexes: list[int]) -> None:
            source = readable[name]
            digests = [index for index in indexes if asks[index].digest]
            chunks = [Chunk(asks[index].extent.start, asks[index].extent.length, -1) for index in digests]
            for index, digest in zip(digests, source.digests(chunks), strict=True):
                answers[index] = digest.digest
            for index in indexes:
                if not asks[index].digest:
                    with suppress(GoneError):
                        answers[index] = source.read(asks[index].extent)

        def asking(name: ReplicaName, indexes: list[int]) -> Callable[[], None]:
            return lambda: ask_one(name, indexes)

        calls = {name: asking(name, indexes) for name, indexes in by_replica.items() if name in readable}
        self.travelled += sum(
            DIGEST_COST if ask.digest else ask.extent.length for ask in asks if ask.replica in self._remote
        )
        for name, error in in_parallel(calls).items():
            if isinstance(error, SourceError):
                self.failed[name] = error.reason
            elif error is not None:
                raise error
        return answers

    def close(self) -> None:
        """Let go of files and connections."""
        for source in self._sources.values():
            source.close()

    def _readable(self) -> dict[ReplicaName, Source]:
        return {name: source for name, source in self._sources.items() if name not in self.failed}
