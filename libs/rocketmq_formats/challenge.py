"""Proofs and seals under a shared secret: the bytes that `raft.handshake` of the controllers and
`replication.challenge` of the replicas have in common. Pure.

Both sides of a connection give a nonce. The transcript is everything sent before the proofs, both nonces included, so a
proof is bound to one connection, one pair of members and one side.
"""

import hashlib
import hmac
import struct
from typing import Final

NONCE_SIZE: Final = 32
PROOF_SIZE: Final = 32
SEAL_SIZE: Final = 16
MIN_SECRET_SIZE: Final = 16
"""Bytes of a secret: fewer can be guessed."""
_pack_sequence: Final = struct.Struct(">Q").pack


def proof(secret: bytes, side: bytes, transcript: bytes) -> bytes:
    """The proof that `side` of this connection holds `secret`: 32 bytes."""
    return hmac.digest(secret, b"proof of the " + side + b"\0" + transcript, hashlib.sha256)


def direction_key(secret: bytes, direction: bytes, transcript: bytes) -> bytes:
    """The key of the seals in one direction of this connection: 32 bytes."""
    return hmac.digest(secret, b"key " + direction + b"\0" + transcript, hashlib.sha256)


def key_for(secret: bytes, purpose: bytes, group: bytes) -> bytes:
    """The key of one purpose, 32 bytes: for a process that proves something and does not need the secret itself."""
    return hmac.digest(secret, b"key for " + purpose + b"\0" + group, hashlib.sha256)


class Seals:
    """The seals of one direction, in the order of its packets: nothing can be left out, repeated or reordered."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hashlib.blake2b(key=key, digest_size=SEAL_SIZE)
        self._sequence = 0

    def next(self, payload: bytes | memoryview) -> bytes:
        """The seal of the next packet, 16 bytes: blake2b(key, sequence number (8, big-endian) + payload)."""
        sequence = self._sequence
        self._sequence = sequence + 1
        digest = self._keyed.copy()  # every replicated message comes here: a copy is cheaper than the key again
        digest.update(_pack_sequence(sequence) + payload)
        return digest.digest()

    def opens(self, payload: bytes | memoryview, found: bytes | memoryview) -> bool:
        """Whether `found` is the seal of the next packet."""
        return hmac.compare_digest(self.next(payload), found)
