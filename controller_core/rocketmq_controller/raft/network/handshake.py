"""Proof before parsing: how members show each other the shared secret, and how later frames are sealed. Sans-IO.

Used by the transport: bytes in, frames out. The member that dials proves itself first, so a stranger who dials learns
nothing that depends on the secret. Both sides then hold two keys, one per direction, made from the secret and both
nonces; each frame carries a keyed digest over its sequence number and its bytes, so that nothing can be forged,
replayed, reordered or reflected. Frames are not encrypted: the log holds names and addresses of brokers, no secrets.

    dialer                                   listener
    HELLO    ids, dialer's nonce        ->
                                        <-   NONCE    listener's nonce
    PROOF    HMAC(secret, transcript)   ->
                                        <-   PROOF    HMAC(secret, transcript), or REFUSED with a reason
    frames                             <->   frames

Layout of a handshake message:

    1  length of the rest (1..HANDSHAKE_MAX)
    1  kind
    n  body: HELLO = magic (7), version (1), length and id of the dialer, of the listener, nonce (32)
             NONCE = nonce (32); PROOF = proof (32); REFUSED = reason (1)

Layout of a frame:

    4  length of the payload, big-endian
    n  payload
    16 blake2b(key of the direction, sequence number (8, big-endian) + payload)
"""

import enum
import hmac
from collections.abc import Collection

from rocketmq_controller.raft.errors import HandshakeError, WireError
from rocketmq_controller.raft.network.messages import MAX_FRAME
from rocketmq_formats import challenge

PROTOCOL_VERSION = 2
MAGIC = b"RMQRAFT"
NONCE_SIZE = challenge.NONCE_SIZE
MAC_SIZE = challenge.SEAL_SIZE
HANDSHAKE_MAX = 255
"""Bytes of a handshake message: all that a stranger can make us hold."""


class Kind(enum.IntEnum):
    HELLO = 1
    NONCE = 2
    PROOF = 3
    REFUSED = 4


class Refusal(enum.IntEnum):
    """Why the listener hangs up; sent to the dialer for its log only, unproven."""

    VERSION = 1
    NOT_FOR_US = 2
    UNKNOWN_MEMBER = 3
    WRONG_SECRET = 4


ADVICE = {
    Refusal.VERSION: "the peer uses another version of the Raft protocol: run the same release on all members",
    Refusal.NOT_FOR_US: "the connection was meant for another member: compare controllerDLegerPeers with the addresses",
    Refusal.UNKNOWN_MEMBER: (
        "the listener's quorum has no member of the dialer's id: either it was removed (stop it and delete its store), "
        "or it has to be added first (rocketmq-admin addControllerMember)"
    ),
    Refusal.WRONG_SECRET: "the shared secret differs: give all members the same controllerRaftSecretFile",
}


class Handshake:
    """One side of one connection until both are proven. Feed `receive`; send what it returns; read `peer` for the
    end."""

    def __init__(
        self, *, self_id: str, members: Collection[str], secret: bytes, nonce: bytes, dial: str | None = None
    ) -> None:
        """`dial`: the member that we dialled, None where we were dialled. `nonce`: 32 fresh random bytes."""
        self._self_id = self_id
        self._members = members
        self._secret = secret
        self._nonce = nonce
        self._dial = dial
        self._buffer = bytearray()
        self._transcript = b""
        self._claimed: str | None = None
        self._expects = Kind.NONCE if dial is not None else Kind.HELLO
        self.peer: str | None = None
        """The other member's id, once it is proven."""
        self.sealer: Sealer | None = None
        self.opener: Opener | None = None

    def begin(self) -> bytes:
        """What the dialer sends first."""
        if self._dial is None:
            return b""
        self._transcript = self._hello_body(self._self_id, self._dial, self._nonce)
        return _message(Kind.HELLO, self._transcript)

    def receive(self, data: bytes) -> bytes:
        """Take bytes of the peer; returns bytes to send. What follows the handshake is left in `opener`.

        Raises:
            HandshakeError: hang up, after sending `error.reply`.
        """
        self._buffer += data
        out = b""
        while self.peer is None and len(self._buffer) >= 1:
            size = self._buffer[0]
            if size < 1:
                raise _refuse(None, "empty handshake message")
            if len(self._buffer) < 1 + size:
                break
            body = bytes(self._buffer[2 : 1 + size])
            kind = self._buffer[1]
            del self._buffer[: 1 + size]
            out += self._step(kind, body)
        if self.opener is not None and self._buffer:
            rest, self._buffer = bytes(self._buffer), bytearray()
            self.opener.feed(rest)
        return out

    def _step(self, kind: int, body: bytes) -> bytes:
        if kind == Kind.REFUSED and self._dial is not None and len(body) == 1:
            known = body[0] in ADVICE
            raise _refuse(None, ADVICE[Refusal(body[0])] if known else f"the peer refused us with reason {body[0]}")
        if kind != self._expects:
            raise _refuse(None, f"something else where {self._expects.name} had to come: not a Raft member")
        if kind == Kind.HELLO:
            return self._on_hello(body)
        if kind == Kind.NONCE:
            return self._on_nonce(body)
        return self._on_proof(body)

    def _on_hello(self, body: bytes) -> bytes:
        head = len(MAGIC) + 1
        if body[: len(MAGIC)] != MAGIC:
            raise _refuse(None, "not a Raft member of ours")
        if body[len(MAGIC) : head] != bytes([PROTOCOL_VERSION]):
            raise _refuse(Refusal.VERSION, ADVICE[Refusal.VERSION])
        try:
            dialer, rest = _take_id(body[head:])
            listener, nonce = _take_id(rest)
        except (UnicodeDecodeError, IndexError) as error:
            raise _refuse(None, "garbled HELLO") from error
        if len(nonce) != NONCE_SIZE:
            raise _refuse(None, "garbled HELLO")
        if listener != self._self_id:
            raise _refuse(Refusal.NOT_FOR_US, ADVICE[Refusal.NOT_FOR_US])
        if dialer == self._self_id or dialer not in self._members:
            raise _refuse(Refusal.UNKNOWN_MEMBER, ADVICE[Refusal.UNKNOWN_MEMBER])
        self._claimed = dialer
        self._transcript = body + self._nonce
        self._expects = Kind.PROOF
        return _message(Kind.NONCE, self._nonce)

    def _on_nonce(self, body: bytes) -> bytes:
        if len(body) != NONCE_SIZE or hmac.compare_digest(body, self._nonce):
            raise _refuse(None, "garbled NONCE")
        self._transcript += body
        self._claimed = self._dial
        self._expects = Kind.PROOF
        return _message(Kind.PROOF, self._proof(b"dialer"))

    def _on_proof(self, body: bytes) -> bytes:
        dialed = self._dial is not None
        if not hmac.compare_digest(body, self._proof(b"listener" if dialed else b"dialer")):
            raise _refuse(None if dialed else Refusal.WRONG_SECRET, ADVICE[Refusal.WRONG_SECRET])
        self.peer = self._claimed
        to_listener, to_dialer = self._key(b"to listener"), self._key(b"to dialer")
        self.sealer = Sealer(to_listener if dialed else to_dialer)
        self.opener = Opener(to_dialer if dialed else to_listener)
        return b"" if dialed else _message(Kind.PROOF, self._proof(b"listener"))

    def _proof(self, side: bytes) -> bytes:
        return challenge.proof(self._secret, side, self._transcript)

    def _key(self, direction: bytes) -> bytes:
        return challenge.direction_key(self._secret, direction, self._transcript)

    @staticmethod
    def _hello_body(dialer: str, listener: str, nonce: bytes) -> bytes:
        ids = b"".join(bytes([len(member.encode())]) + member.encode() for member in (dialer, listener))
        return MAGIC + bytes([PROTOCOL_VERSION]) + ids + nonce


class HandshakeRefusedError(HandshakeError):
    """`reply`: bytes to send to the peer before hanging up, may be empty."""

    def __init__(self, reply: bytes, text: str) -> None:
        super().__init__(text)
        self.reply = reply


def _refuse(reason: Refusal | None, text: str) -> HandshakeRefusedError:
    """`text` is logged once in a while for each text: nothing that a stranger chose may be part of it."""
    return HandshakeRefusedError(_message(Kind.REFUSED, bytes([reason])) if reason is not None else b"", text)


def _message(kind: Kind, body: bytes) -> bytes:
    return bytes([1 + len(body), kind]) + body


def _take_id(data: bytes) -> tuple[str, bytes]:
    end = 1 + data[0]
    return data[1:end].decode(), data[end:]


class Sealer:
    """Makes frames for one direction of a proven connection."""

    def __init__(self, key: bytes) -> None:
        self._seals = challenge.Seals(key)

    def seal(self, payload: bytes) -> bytes:
        """The frame for `payload`."""
        return b"".join((len(payload).to_bytes(4, "big"), payload, self._seals.next(payload)))


class Opener:
    """Takes the frames of the other direction out of the stream."""

    def __init__(self, key: bytes) -> None:
        self._seals = challenge.Seals(key)
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def frames(self) -> list[bytes]:
        """Payloads of all frames that are complete.

        Raises:
            WireError: a frame is too long or was not made by the peer; the connection has to be closed.
        """
        buffer = self._buffer
        position, payloads = 0, []
        while len(buffer) - position >= 4:
            size = int.from_bytes(buffer[position : position + 4], "big")
            if size > MAX_FRAME:
                raise WireError(f"frame of {size} bytes, {MAX_FRAME} are allowed")
            end = position + 4 + size + MAC_SIZE
            if len(buffer) < end:
                break
            payload = bytes(buffer[position + 4 : position + 4 + size])
            if not self._seals.opens(payload, bytes(buffer[position + 4 + size : end])):
                raise WireError("a frame's seal is wrong: bytes were changed, dropped or repeated on the way")
            payloads.append(payload)
            position = end
        if position:
            del buffer[:position]
        return payloads
