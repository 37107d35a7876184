"""xxh3-128 of ranges of a log. For the `files` way of verifying, and for the sidecar that serves digests.

Read by preadv into one buffer of 256 KiB, which stays in the processor's cache between the read and the hash: about as
fast as mapping the files, which is not possible (see `folder`). Both calls release the GIL, with microseconds of Python
in between, so a thread that does this hardly delays an event loop.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

import xxhash

from rocketmq_commitlog.errors import AbsentError, UnreadableError
from rocketmq_commitlog.folder import LogFolder

SIZE: Final = 16
"""Bytes of a digest."""
PIECE: Final = 256 * 1024
_LEAST: Final = 4096
"""Minimum cost of a piece, in bytes: a call, and perhaps a page of a disk."""


class DigestJob:
    """Digests of many ranges, in their order, worked off in bites. Not thread-safe: one bite after the other."""

    def __init__(self, log: LogFolder, ranges: Iterable[tuple[int, int]]) -> None:
        """`ranges`: (offset, length) each. Length 0 has the digest of nothing."""
        self._log = log
        self._ranges = deque(ranges)
        self._hash = xxhash.xxh3_128()
        self._done_of_first = 0
        self._piece = memoryview(bytearray(PIECE))
        self.read = 0
        """Bytes, so far."""
        self.cost = 0
        """The same plus a fixed cost per piece, for budgets and rate limits."""

    @property
    def done(self) -> bool:
        """Every range has been answered."""
        return not self._ranges

    def work(self, budget: int) -> list[bytes | None]:
        """Spend about `budget`; the digests that are complete with that. None: the bytes are not there.

        Raises:
            UnreadableError: a disk that does not do its work, in the first range that is left.
        """
        digests: list[bytes | None] = []
        until = self.cost + budget
        while self._ranges and self.cost < until:
            offset, length = self._ranges[0]
            left = length - self._done_of_first
            try:
                piece = self._piece[: min(left, PIECE)]
                self.cost += max(len(piece), _LEAST)
                if left:
                    self._log.read_into(offset + self._done_of_first, piece)
                    self._hash.update(piece)
                    self.read += len(piece)
                    self._done_of_first += len(piece)
                if self._done_of_first < length:
                    continue
                digests.append(self._hash.digest())
            except AbsentError:
                digests.append(None)
            except UnreadableError:
                self._hash.reset()
                self._done_of_first = 0
                if digests:
                    return digests  # the next call raises it
                raise
            self._ranges.popleft()
            self._hash.reset()
            self._done_of_first = 0
        return digests
