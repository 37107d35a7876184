"""The challenge before replication: only peers with the secret are accepted, in both directions. Without sockets."""

import contextlib
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.challenge import SEAL_SIZE, Seals
from rocketmq_formats.errors import FrameError
from rocketmq_formats.replication.challenge import MESSAGE_MAX, Kind, encode_message, group_digest
from rocketmq_formats.replication.frames import (
    SealError,
    SlaveHandshake,
    SlaveStream,
    encode_ack,
    encode_slave_handshake,
)
from rocketmq_sidecar.domain.replication.ha_challenge import (
    TRANSITIONS,
    ChallengeError,
    MasterChallenge,
    SlaveChallenge,
    State,
    Trust,
)

SECRET = b"0123456789abcdef"
GROUP = group_digest("DefaultCluster", "broker-a")
SLAVE_NONCE, MASTER_NONCE = bytes(range(32)), bytes(range(100, 132))
HELLO_BODY = (
    b"RMQHA\x01"
    + hashlib.sha256(b"DefaultCluster\0broker-a").digest()
    + bytes.fromhex("0000000000000003000000000000000100000007")
    + SLAVE_NONCE
)


def slave(
    *, secret: bytes = SECRET, group: bytes = GROUP, master_id: int = 1, nonce: bytes = SLAVE_NONCE
) -> SlaveChallenge:
    return SlaveChallenge(Trust(group, secret), broker_id=3, master_id=master_id, epoch=7, nonce=nonce)


def master(*, secret: bytes = SECRET, required: bool = True, nonce: bytes = MASTER_NONCE) -> MasterChallenge:
    return MasterChallenge(Trust(GROUP, secret, required), broker_id=1, nonce=nonce)


def introduce(one: SlaveChallenge, other: MasterChallenge, *, size: int = 1000) -> list[bytes]:
    """Pass bytes back and forth in pieces of `size` until both sides are silent; returns what was sent."""
    to_master, said = one.begin(), []
    while to_master:
        said.append(to_master)
        to_slave = b"".join(other.receive(to_master[i : i + size]) for i in range(0, len(to_master), size))
        said.append(to_slave)
        to_master = b"".join(one.receive(to_slave[i : i + size]) for i in range(0, len(to_slave), size))
    return said


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_replicas_of_a_group_prove_themselves(size: int) -> None:
    one, other = slave(), master()
    introduce(one, other, size=size)
    assert (one.state, other.state, other.slave_id) == (State.OVER, State.OVER, 3)
    for sealing, opening in ((one.sealing, other.opening), (other.sealing, one.opening)):
        assert sealing is not None
        assert opening is not None
        assert opening.opens(b"packet", sealing.next(b"packet"))
        assert opening.opens(b"", sealing.next(b""))


def test_the_bytes() -> None:
    transcript = HELLO_BODY + MASTER_NONCE
    proofs = {
        side: hmac.new(SECRET, b"proof of the %b\0" % side + transcript, hashlib.sha256).digest()
        for side in (b"slave", b"master")
    }
    assert introduce(one := slave(), master()) == [
        b"\x5b\x01" + HELLO_BODY,
        b"\x21\x02" + MASTER_NONCE,
        b"\x21\x03" + proofs[b"slave"],
        b"\x21\x03" + proofs[b"master"],
    ]
    assert proofs[b"slave"].hex() == "8c685d0bc18f4219286a771249137124eb6dc4a88dd620c0e6e763a560b9db56"
    assert proofs[b"master"].hex() == "f409011ff60b1b4edc46c0e4d10f8006b70f4a0703cea05cf3c380b952ac4c2e"
    assert one.sealing is not None
    assert one.sealing.next(encode_ack(4096)).hex() == "3b6b0fae1d9ac307f1c6828caa34f0e3"
    assert one.sealing.next(encode_ack(4096)).hex() == "b6a21803cb2cc2cb96820032417a26c6"


def test_all_that_a_stranger_can_make_us_hold_is_one_message() -> None:
    assert len(slave().begin()) == 1 + MESSAGE_MAX
    for first in range(1, 256):
        with pytest.raises(FrameError):
            master().receive(bytes([first, Kind.PROOF]) + b"x" * 300)


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (slave(secret=b"another secret!!"), "haReplicationSecretFile"),
        (slave(group=group_digest("DefaultCluster", "broker-b")), "another group"),
        (slave(master_id=2), "meant for another replica"),
    ],
    ids=["secret", "group", "master"],
)
def test_a_refused_peer_gets_advice(one: SlaveChallenge, told: str) -> None:
    other = master()
    with pytest.raises(ChallengeError, match=told) as caught:
        introduce(one, other)
    assert other.slave_id is None
    with pytest.raises(ChallengeError, match=told):
        one.receive(caught.value.reply)


def test_a_master_of_another_release_is_recognised() -> None:
    hello = bytearray(slave().begin())
    hello[7] += 1
    with pytest.raises(ChallengeError, match="run one release") as caught:
        master().receive(bytes(hello))
    assert caught.value.reply


@pytest.mark.parametrize(
    "said", [encode_message(Kind.PROOF, b"?" * 32), encode_message(Kind.NONCE, b"?" * 32), b"\0\0\0\1"]
)
def test_a_slave_does_not_follow_a_master_that_proves_nothing(said: bytes) -> None:
    one = slave()
    one.begin()
    one.receive(encode_message(Kind.NONCE, MASTER_NONCE))
    with pytest.raises(FrameError):
        one.receive(said)
    assert one.opening is None


def test_a_proof_does_not_prove_the_other_side() -> None:
    # A fake master gives the slave's own words back; a fake slave those of another connection.
    one = slave()
    one.begin()
    proof = one.receive(encode_message(Kind.NONCE, MASTER_NONCE))
    with pytest.raises(ChallengeError, match="not following it"):
        one.receive(proof)
    with pytest.raises(ChallengeError, match="own nonce"):
        slave().receive(encode_message(Kind.NONCE, SLAVE_NONCE))
    heard = introduce(slave(), master())
    replayed = master(nonce=b"another nonce".ljust(32))
    replayed.receive(heard[0])
    with pytest.raises(ChallengeError, match="secret"):
        replayed.receive(heard[2])


@given(st.data())
def test_changed_bytes_never_lead_to_a_proof(data: st.DataObject) -> None:
    """One byte is changed on its way: no peer is accepted wrongly, and the only exception is `FrameError`."""
    one, other = slave(), master()
    position = data.draw(st.integers(0, 191 - 1), label="position of the byte")
    change = data.draw(st.integers(1, 255), label="change")
    seen = 0

    def carried(said: bytes) -> bytes:
        nonlocal seen
        changed = bytearray(said)
        if seen <= position < seen + len(said):
            changed[position - seen] ^= change
        seen += len(said)
        return bytes(changed)

    try:
        to_master = carried(one.begin())
        while to_master:
            to_slave = carried(other.receive(to_master))
            to_master = carried(one.receive(to_slave))
    except FrameError:
        pass
    assert one.state is not State.OVER
    if position < 92 + 34 + 34:
        assert other.slave_id is None


@given(st.binary(max_size=300), st.booleans())
def test_no_noise_opens_the_door(noise: bytes, first_zero: bool) -> None:
    other = master()
    with contextlib.suppress(FrameError):
        other.receive((b"\0" if first_zero else b"") + noise)
    assert other.state is not State.OVER


def test_who_proves_nothing_is_taken_where_nothing_is_asked() -> None:
    packets = encode_slave_handshake(SlaveHandshake(3)) + encode_ack(5)
    for other in (master(secret=b""), master(required=False)):
        assert other.receive(packets) == b""
        assert (other.state, other.slave_id, other.sealing, other.opening) == (State.OVER, None, None, None)
        assert other.rest() == packets
    with pytest.raises(ChallengeError, match="haReplicationSecretFile"):
        master().receive(packets[:1])
    with pytest.raises(ChallengeError, match="haReplicationSecretFile"):
        master(secret=b"").receive(slave().begin())


def test_a_slave_proves_itself_where_it_need_not() -> None:
    one, other = slave(), master(required=False)
    introduce(one, other)
    assert other.slave_id == 3


def test_each_side_follows_the_transition_table() -> None:
    for state, kind in ((state, kind) for state in State for kind in Kind if state is not State.OVER):
        sides: list[SlaveChallenge | MasterChallenge] = [slave(), master()]
        for side in sides:
            side.state = state
            body = {Kind.HELLO: HELLO_BODY, Kind.REFUSED: b"\1"}.get(kind, b"?" * 32)
            if (state, kind) in TRANSITIONS and kind is not Kind.PROOF:
                continue
            with pytest.raises(FrameError):
                side.receive(encode_message(kind, body))


def sealed(seals: Seals, *packets: bytes) -> list[bytes]:
    return [packet + seals.next(packet) for packet in packets]


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_sealed_packets_of_a_slave(size: int) -> None:
    stream = SlaveStream(Seals(b"k"))
    data = b"".join(sealed(Seals(b"k"), encode_slave_handshake(SlaveHandshake(3)), encode_ack(5), encode_ack(6)))
    found = [packet for i in range(0, len(data), size) for packet in stream.receive(data[i : i + size])]
    assert found == [SlaveHandshake(3), 5, 6]


@pytest.mark.parametrize(
    "data",
    [
        sealed(Seals(b"other"), encode_ack(5))[0],
        b"".join(sealed(Seals(b"k"), encode_ack(5), encode_ack(6))[1:]),
        b"".join(sealed(Seals(b"k"), encode_ack(5)) * 2),
        encode_ack(9) + Seals(b"k").next(encode_ack(5)),
        encode_ack(5) + bytes(SEAL_SIZE),
    ],
    ids=["another key", "one left out", "repeated", "changed", "no seal"],
)
def test_what_the_slave_did_not_say_is_not_taken(data: bytes) -> None:
    with pytest.raises(SealError):
        SlaveStream(Seals(b"k")).receive(data)
