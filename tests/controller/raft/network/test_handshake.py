"""Proof before parsing: two members that share the secret find each other, everybody else finds a closed door."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_controller.raft.errors import HandshakeError, WireError
from rocketmq_controller.raft.network.handshake import (
    HANDSHAKE_MAX,
    MAC_SIZE,
    Handshake,
    HandshakeRefusedError,
    Opener,
    Sealer,
)
from rocketmq_controller.raft.network.messages import MAX_FRAME

SECRET = b"0123456789abcdef"


def dialer(*, self_id: str = "b", dial: str = "a", secret: bytes = SECRET, nonce: bytes = b"D" * 32) -> Handshake:
    return Handshake(self_id=self_id, members=("a",), secret=secret, nonce=nonce, dial=dial)


def listener(*, self_id: str = "a", secret: bytes = SECRET, nonce: bytes = b"L" * 32) -> Handshake:
    return Handshake(self_id=self_id, members=("b", "c"), secret=secret, nonce=nonce)


def introduce(one: Handshake, other: Handshake, *, size: int = 1000) -> None:
    """Pass bytes back and forth in pieces of `size` until both sides have nothing left to send."""
    to_other, to_one = one.begin(), b""
    while to_other or to_one:
        pieces, to_other = [to_other[i : i + size] for i in range(0, len(to_other), size)], b""
        for piece in pieces:
            to_one += other.receive(piece)
        pieces, to_one = [to_one[i : i + size] for i in range(0, len(to_one), size)], b""
        for piece in pieces:
            to_other += one.receive(piece)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_members_with_the_same_secret_prove_themselves(size: int) -> None:
    one, other = dialer(), listener()
    introduce(one, other, size=size)
    assert (one.peer, other.peer) == ("a", "b")
    for sealer, opener in ((one.sealer, other.opener), (other.sealer, one.opener)):
        opener.feed(sealer.seal(b"hello") + sealer.seal(b""))
        assert opener.frames() == [b"hello", b""]


def test_a_wrong_secret_is_refused_with_what_to_do() -> None:
    with pytest.raises(HandshakeRefusedError, match="controllerRaftSecretFile") as caught:
        introduce(dialer(secret=b"another secret!!"), other := listener())
    assert other.peer is None
    waiting = dialer()
    waiting.begin()
    with pytest.raises(HandshakeError, match="controllerRaftSecretFile"):  # the dialer gets the reason too
        waiting.receive(caught.value.reply)


def test_a_listener_that_does_not_know_the_secret_is_refused() -> None:
    one, other = dialer(), listener(secret=b"another secret!!")
    nonce = other.receive(one.begin())
    one.receive(nonce)
    with pytest.raises(HandshakeError):
        one.receive(bytes([33, 3]) + b"?" * 32)
    assert one.peer is None


@pytest.mark.parametrize(
    ("self_id", "dial", "reason"),
    [
        ("x", "a", "has no member of the dialer's id"),
        ("a", "a", "has no member of the dialer's id"),
        ("b", "c", "meant for another member"),
    ],
    ids=["stranger", "oneself", "another address"],
)
def test_who_is_not_a_peer_is_refused_before_any_proof(self_id: str, dial: str, reason: str) -> None:
    with pytest.raises(HandshakeRefusedError, match=reason):
        listener().receive(dialer(self_id=self_id, dial=dial).begin())


def test_bytes_of_a_stranger_are_not_part_of_the_reason() -> None:
    """Reasons are what log lines are counted by: a new one for each attempt would fill the log."""
    reasons = set()
    for number in range(50):
        names = dialer(dial=f"x{number}").begin(), dialer(self_id=f"x{number}").begin()
        for hello in (*names, bytes([2, 10 + number, 0])):
            with pytest.raises(HandshakeRefusedError) as caught:
                listener().receive(hello)
            reasons.add(str(caught.value))
    assert len(reasons) <= 4


def test_another_version_is_refused_with_what_to_do() -> None:
    hello = bytearray(dialer().begin())
    hello[9] += 1
    with pytest.raises(HandshakeRefusedError, match="same release"):
        listener().receive(bytes(hello))


def test_a_proof_cannot_be_reflected() -> None:
    """An attacker between two attempts plays a member's own bytes back to it."""
    one = dialer()
    hello = one.begin()
    with pytest.raises(HandshakeError):
        one.receive(hello)
    again = dialer()
    again.begin()
    proof = again.receive(bytes([33, 2]) + b"L" * 32)
    with pytest.raises(HandshakeError):
        again.receive(proof)


def test_a_recorded_handshake_cannot_be_played_again() -> None:
    one, other = dialer(), listener()
    hello = one.begin()
    proof = one.receive(other.receive(hello))
    other.receive(proof)
    fresh = listener(nonce=b"M" * 32)
    fresh.receive(hello)
    with pytest.raises(HandshakeError):
        fresh.receive(proof)


@given(st.binary(min_size=1, max_size=600))
def test_strangers_bytes_are_refused_or_waited_for(data: bytes) -> None:
    other = listener()
    try:
        other.receive(data)
    except HandshakeError:
        return
    assert other.peer is None
    assert len(other._buffer) <= HANDSHAKE_MAX + 1


# Sealed frames.


def pair() -> tuple[Sealer, Opener]:
    return Sealer(b"k" * 32), Opener(b"k" * 32)


@given(st.lists(st.binary(max_size=300), max_size=5), st.data())
def test_frames_arrive_however_the_stream_is_cut(payloads: list[bytes], data: st.DataObject) -> None:
    sealer, opener = pair()
    stream = b"".join(map(sealer.seal, payloads))
    taken: list[bytes] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        opener.feed(stream[:size])
        stream = stream[size:]
        taken += opener.frames()
    assert taken == payloads


@given(st.binary(min_size=1, max_size=50), st.data())
def test_a_changed_bit_anywhere_is_found(payload: bytes, data: st.DataObject) -> None:
    sealer, opener = pair()
    frame = bytearray(sealer.seal(payload))
    position = data.draw(st.integers(0, len(frame) - 1))
    frame[position] ^= 1 << data.draw(st.integers(0, 7))
    opener.feed(bytes(frame))
    try:
        assert opener.frames() == []  # a longer length: still waiting
        assert position < 4
    except WireError:
        pass


@pytest.mark.parametrize("order", [(0, 0), (1,), (1, 0)], ids=["repeated", "dropped", "swapped"])
def test_repeated_dropped_and_swapped_frames_are_found(order: tuple[int, ...]) -> None:
    sealer, opener = pair()
    frames = [sealer.seal(b"one"), sealer.seal(b"two")]
    for number in order:
        opener.feed(frames[number])
    with pytest.raises(WireError, match="seal"):
        opener.frames()


def test_a_frame_that_lies_about_its_length_is_refused_at_once() -> None:
    _, opener = pair()
    opener.feed((MAX_FRAME + 1).to_bytes(4, "big"))
    with pytest.raises(WireError, match="allowed"):
        opener.frames()


def test_a_frame_of_one_direction_does_not_fit_the_other() -> None:
    one, other = dialer(), listener()
    introduce(one, other)
    frame = one.sealer.seal(b"hello")
    assert len(frame) == 4 + 5 + MAC_SIZE
    one.opener.feed(frame)
    with pytest.raises(WireError):
        one.opener.frames()
