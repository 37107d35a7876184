"""Both sides of the challenge before replication, without sockets: which master may be followed, and which slaves may
follow. Pure; the bytes are those of `rocketmq_formats.replication.challenge`.

With a secret, a master sends nothing of its log to a peer that has not authenticated itself, and does not count its
acknowledgements; a slave accepts no byte from a master that has not. All packets after the challenge carry seals.
`secret_required` false is for introducing the secret in a running group: peers that do not authenticate themselves are
accepted too. Nonces are arguments: 32 fresh random bytes for each connection.
"""

import hmac
from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import Final

import msgspec

from rocketmq_formats.challenge import Seals
from rocketmq_formats.errors import FrameError
from rocketmq_formats.replication.challenge import (
    VERSION,
    Hello,
    Kind,
    MessageReader,
    Refusal,
    Side,
    decode_hello,
    encode_hello,
    encode_message,
    proof,
    seals_to,
)

_SETTING: Final = "haReplicationSecretFile"
ADVICE: Final = {
    Refusal.VERSION: "the other replica uses another version of the challenge: run one release on all replicas",
    Refusal.GROUP: "the other replica belongs to another group: compare brokerClusterName and brokerName",
    Refusal.NOT_FOR_US: "the connection was meant for another replica: its address may belong to this one now",
    Refusal.WRONG_SECRET: f"the secret differs: give all replicas of the group the same {_SETTING}",
}


class State(Enum):
    """The state of one side."""

    HELLO_AWAITED = auto()
    NONCE_AWAITED = auto()
    PROOF_AWAITED = auto()
    OVER = auto()
    """The challenge is complete: packets follow."""


TRANSITIONS: Final = {
    (State.HELLO_AWAITED, Kind.HELLO): State.PROOF_AWAITED,
    (State.NONCE_AWAITED, Kind.NONCE): State.PROOF_AWAITED,
    (State.PROOF_AWAITED, Kind.PROOF): State.OVER,
}
"""Anything absent is an error of the peer: the connection is closed. REFUSED ends a slave's side in any state."""


class ChallengeError(FrameError):
    """The other side has not authenticated itself. Send `reply` (it may be empty) before closing the connection."""

    def __init__(self, text: str, reply: bytes = b"") -> None:
        super().__init__(text)
        self.reply = reply


class Trust(msgspec.Struct, frozen=True):
    """How a replica authenticates itself, and what it requires of the others."""

    group: bytes
    """`group_digest`."""
    secret: bytes = b""
    """Empty: no replica authenticates itself."""
    secret_required: bool = True


class _Side(ABC):
    """What both sides have in common."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.sealing: Seals | None = None
        """For what is sent after the challenge."""
        self.opening: Seals | None = None
        """For what is received after the challenge."""
        self._reader = MessageReader()

    def receive(self, data: bytes) -> bytes:
        """What to send now.

        Raises:
            ChallengeError: the other side has not authenticated itself, or refuses us.
            FrameError: bytes that are no message of the challenge.
        """
        self._reader.feed(data)
        return self._steps()

    def _steps(self) -> bytes:
        out = b""
        while self.state is not State.OVER:
            message = self._reader.next()
            if message is None:
                break
            out += self._step(*message)
        return out

    def rest(self) -> bytes:
        """What came after the challenge, or in place of it."""
        return self._reader.rest()

    @abstractmethod
    def _step(self, kind: Kind, body: bytes) -> bytes:
        """Handle one message; returns what to send."""


class SlaveChallenge(_Side):
    """The slave's side of one connection. Send `begin`, feed `receive` until the state is OVER."""

    def __init__(self, trust: Trust, *, broker_id: int, master_id: int, epoch: int, nonce: bytes) -> None:
        """`epoch` is the masterEpoch that this replica follows `master_id` in."""
        super().__init__(State.NONCE_AWAITED)
        self._secret, self._nonce = trust.secret, nonce
        self._transcript = encode_hello(Hello(trust.group, broker_id, master_id, epoch, nonce))

    def begin(self) -> bytes:
        """What to send first."""
        return encode_message(Kind.HELLO, self._transcript)

    def _step(self, kind: Kind, body: bytes) -> bytes:
        if kind is Kind.REFUSED:
            raise ChallengeError(_refused(body[0]))
        state = _moved(self.state, kind)
        if state is State.PROOF_AWAITED:
            if hmac.compare_digest(body, self._nonce):
                raise ChallengeError("the master returned our own nonce")
            self._transcript += body
            self.state = state
            return encode_message(Kind.PROOF, proof(self._secret, Side.SLAVE, self._transcript))
        if not hmac.compare_digest(body, proof(self._secret, Side.MASTER, self._transcript)):
            raise ChallengeError("the master did not prove that it holds the group's secret: not following it")
        self.state = state
        self.sealing = seals_to(self._secret, Side.MASTER, self._transcript)
        self.opening = seals_to(self._secret, Side.SLAVE, self._transcript)
        return b""


class MasterChallenge(_Side):
    """The master's side of one connection. Feed `receive` until the state is OVER."""

    def __init__(self, trust: Trust, *, broker_id: int, nonce: bytes) -> None:
        """`broker_id` is this master's."""
        super().__init__(State.HELLO_AWAITED)
        self.slave_id: int | None = None
        """The brokerId that the peer has authenticated; None after the challenge: it did not, and need not."""
        self._trust, self._broker_id, self._nonce = trust, broker_id, nonce
        self._claimed = 0
        self._transcript = b""

    def receive(self, data: bytes) -> bytes:
        """As the slave's side; the first byte shows whether there is a challenge."""
        self._reader.feed(data)
        if self.state is State.HELLO_AWAITED and self._reader.started:
            self._recognise()
        return self._steps()

    def _recognise(self) -> None:
        trust, plain = self._trust, self._reader.packets_follow
        if plain and trust.secret and trust.secret_required:
            raise ChallengeError(f"the slave does not authenticate itself: give it the group's {_SETTING}")
        if not plain and not trust.secret:
            raise ChallengeError(
                f"not a slave's first packet; if it is a replica with {_SETTING}, give this one the same file"
            )
        if plain:
            self.state = State.OVER

    def _step(self, kind: Kind, body: bytes) -> bytes:
        state = _moved(self.state, kind)
        if state is State.PROOF_AWAITED:
            self._on_hello(body)
            self.state = state
            return encode_message(Kind.NONCE, self._nonce)
        secret = self._trust.secret
        if not hmac.compare_digest(body, proof(secret, Side.SLAVE, self._transcript)):
            raise _refusal(Refusal.WRONG_SECRET)
        self.state, self.slave_id = state, self._claimed
        self.sealing = seals_to(secret, Side.SLAVE, self._transcript)
        self.opening = seals_to(secret, Side.MASTER, self._transcript)
        return encode_message(Kind.PROOF, proof(secret, Side.MASTER, self._transcript))

    def _on_hello(self, body: bytes) -> None:
        hello = decode_hello(body)
        if hello.version != VERSION:
            raise _refusal(Refusal.VERSION)
        if hello.group != self._trust.group:
            raise _refusal(Refusal.GROUP)
        if hello.master_id != self._broker_id:
            raise _refusal(Refusal.NOT_FOR_US)
        self._claimed = hello.broker_id
        self._transcript = body + self._nonce


def _moved(state: State, kind: Kind) -> State:
    moved = TRANSITIONS.get((state, kind))
    if moved is None:
        raise ChallengeError(f"{kind.name} in state {state.name}")
    return moved


def _refusal(reason: Refusal) -> ChallengeError:
    return ChallengeError(ADVICE[reason], encode_message(Kind.REFUSED, bytes((reason,))))


def _refused(code: int) -> str:
    known = code in set(Refusal)
    return f"the master refuses us: {ADVICE[Refusal(code)] if known else f'reason {code}'}"
