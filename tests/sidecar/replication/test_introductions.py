"""Replicas name themselves to each other before the first byte: whatever belongs to a group's identity is compared, and
a peer of another group is refused with both values, also one with the same secret. An official replica does not name
itself."""

import struct
from pathlib import Path

import msgspec
import pytest
import structlog.testing

from rocketmq_formats.challenge import SEAL_SIZE, Seals
from rocketmq_formats.errors import FrameError
from rocketmq_formats.replication import introduction
from rocketmq_formats.replication.frames import SealError, SlaveHandshake, encode_ack, encode_slave_handshake
from rocketmq_formats.replication.introduction import Introduction, Reception
from rocketmq_sidecar.domain.replication.ha_introduction import receive
from tests.sidecar.replication.replica_kit import Replica, acknowledged, in_sync, replicas
from tests.sidecar.replication.test_strangers import exchange

SLAVE = Introduction("C", "b", 2, 1, "ours")
MASTER = Introduction("C", "b", 1, 1, "ours")


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({}, None),
        ({"controllers": None}, None),
        ({"cluster_name": "D"}, "brokerClusterName is D at the slave and C here"),
        ({"broker_name": "a"}, "brokerName is a at the slave and b here"),
        ({"master_id": 3}, "the master's brokerId is 3 at the slave and 1 here"),
        ({"controllers": "theirs"}, "controllerDLegerGroup of the controllers is theirs at the slave and ours here"),
        (
            {"cluster_name": "D", "broker_name": "a"},
            "brokerClusterName is D at the slave and C here; brokerName is a at the slave and b here",
        ),
    ],
)
def test_each_part_is_compared(changes: dict[str, object], refused: str | None) -> None:
    assert receive(msgspec.structs.replace(SLAVE, **changes), MASTER) == Reception(refused)


def test_the_bytes() -> None:
    word = introduction.encode(SLAVE)
    assert word[:8] == struct.pack(">ii", 17, len(word) - 8)
    assert introduction.decode(word + b"more", Introduction) == (SLAVE, b"more")
    for size in range(len(word)):
        assert introduction.decode(word[:size], Introduction) is None
        assert introduction.begins(word[:size]) is (None if size < 4 else True)
    assert introduction.begins(encode_slave_handshake(SlaveHandshake(2))) is False


@pytest.mark.parametrize(
    "word",
    [
        struct.pack(">ii", 17, 4097),
        struct.pack(">ii", 17, -1),
        struct.pack(">ii", 17, 2) + b"{}",
        b"\0\0\0\x11\0\0\0\1\xff",
    ],
)
def test_what_is_no_introduction(word: bytes) -> None:
    with pytest.raises(FrameError):
        introduction.decode(word, Introduction)


def test_after_a_challenge_it_is_sealed() -> None:
    def seals() -> Seals:
        return Seals(b"key of one direction")

    word = introduction.encode(SLAVE, seals())
    assert introduction.decode(word + b"more", Introduction, seals()) == (SLAVE, b"more")
    for size in range(len(word)):
        assert introduction.decode(word[:size], Introduction, seals()) is None
    with pytest.raises(SealError):
        introduction.decode(word.replace(b"ours", b"them"), Introduction, seals())
    with pytest.raises(SealError):
        introduction.decode(introduction.encode(SLAVE) + bytes(SEAL_SIZE), Introduction, seals())


async def lead(one: Replica) -> None:
    await one.lead(1, 1)
    one.append(b"first")


async def test_a_slave_of_another_group_at_the_masters_ha_address(tmp_path: Path) -> None:
    """The broker's port is that of its own group, the HA address leads to another group's master: 906 compares names,
    but the address in it may have been given out again."""
    async with (
        replicas(tmp_path / "C", 1, own_secret=b"") as (ours,),
        replicas(tmp_path / "D", 2, own_secret=b"", broker_cluster_name="D") as (theirs, slave),
    ):
        await lead(ours)
        await lead(theirs)
        port, theirs.replication._ha_port = theirs.replication.ha_port, ours.replication.ha_port
        with structlog.testing.capture_logs() as lines:
            await slave.follow(theirs, 1)
            await slave.until(lambda: any(slave.troubles))
        refused = "brokerClusterName is D at the slave and C here"
        assert refused in str(slave.troubles), "/readyz"
        logged = {line["event"] for line in lines if refused in str(line.get("reason"))}
        assert logged == {"slave refused", "cannot follow the master without an operator"}
        assert slave.end == 0, "it has no byte of the other group's log"
        assert not ours.replication.slaves
        theirs.replication._ha_port = port
        await in_sync(theirs, slave)
        assert slave.troubles[-1] is None


@pytest.mark.parametrize("secret", [b"", b"the same in both clusters"])
async def test_replicas_of_other_controllers(tmp_path: Path, secret: bytes) -> None:
    async with replicas(tmp_path, 2, own_secret=secret) as (one, two):
        one.controllers, two.controllers = "ours", "theirs"
        await lead(one)
        await two.follow(one, 1)
        await two.until(lambda: any(two.troubles))
        assert "controllerDLegerGroup of the controllers is theirs at the slave and ours here" in str(two.troubles)
        assert two.end == 0
        two.controllers = "ours"
        await in_sync(one, two)


async def test_official_replicas_do_not_name_themselves(tmp_path: Path) -> None:
    """Neither is one asked to, nor is it refused for that."""
    async with replicas(tmp_path, 2, own_secret=b"") as (one, two):
        one.native = False
        await lead(one)
        await in_sync(one, two)
        server = one.replication._server
        assert server is not None
        assert [connection.introduction for connection in server.connections] == [None]


async def test_native_replicas_do(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2, own_secret=b"") as (one, two):
        await lead(one)
        await in_sync(one, two)
        server = one.replication._server
        assert server is not None
        named = [connection.introduction for connection in server.connections if connection.introduction]
        assert named == [Introduction("C", "b", 2, 1)]
        forged = encode_slave_handshake(SlaveHandshake(2)) + encode_ack(0)
        await exchange(one.replication.ha_port, introduction.encode(Introduction("C", "b", 3, 1)) + forged)
        assert [slave.broker_id for slave in one.replication.slaves] == [2]
        await acknowledged(one)
