"""A rolling hash over the log: each entry's covers the entry and all before it.

Raft compares logs by index and term, and so does not notice two logs that differ in bytes only: entries changed on a
disk, or a quorum that continued after a majority had lost its disks. Leaders send the hash with index and term, so
a member that differs stops at the first message. Kept in memory and in snapshots; used by
replication.py, following.py and snapshots.py.
"""

import hashlib

from rocketmq_controller.raft.ports import LogStore

CHAIN_BYTES = 8
GENESIS = bytes(CHAIN_BYTES)
"""Of the entry that every log begins with."""
UNKNOWN = b""


def extend(chain: bytes, term: int, command: bytes) -> bytes:
    """The hash after one more entry."""
    digest = hashlib.blake2b(chain, digest_size=CHAIN_BYTES)
    digest.update(term.to_bytes(8, "big"))
    digest.update(command)
    return digest.digest()


class Chain:
    """The hashes of the entries from some index on, computed on demand."""

    def __init__(self, index: int, chain: bytes) -> None:
        """`chain` at `index`; UNKNOWN if it is not known there, and so from there on."""
        self._first = index
        self._hashes = [chain]

    def at(self, index: int, log: LogStore) -> bytes:
        """UNKNOWN below the first index that it has, and beyond the log."""
        position = index - self._first
        if position < 0 or self._hashes[0] == UNKNOWN:
            return UNKNOWN
        hashes = self._hashes
        if position >= len(hashes):
            base = log[0][1]
            if index > log[-1][1] or self._first + len(hashes) <= base:
                return UNKNOWN
            for command, _, term in log[self._first + len(hashes) - base : index + 1 - base]:
                hashes.append(extend(hashes[-1], term, command))
        return hashes[position]

    def cut(self, index: int) -> None:
        """The entries from `index` on are others now."""
        del self._hashes[max(index - self._first, 1) :]

    def forget(self, index: int) -> None:
        """The entries below `index` are no longer needed."""
        count = min(index - self._first, len(self._hashes) - 1)
        if count > 0:
            del self._hashes[:count]
            self._first += count
