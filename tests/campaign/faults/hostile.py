"""What strangers send to the ports, from a node that is no member. None of it may change anything that honest peers
rely on.
"""

import asyncio
import random
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from tests.campaign import wire
from tests.campaign.cluster import (
    BROKER_PORT,
    CLUSTER,
    CONTROLLER_PORT,
    GROUP,
    HA_PORT,
    NAMESRV_PORT,
    RAFT_PORT,
    Cluster,
    GroupState,
)
from tests.campaign.load import ODD

_OPENINGS = (
    b"",
    struct.pack(">ii", 0x7FFFFFFF, 0x00FFFFFF),
    struct.pack(">ii", -1, -1),
    struct.pack(">ii", 64, 1 << 24 | 60),
    b"GET / HTTP/1.1\r\n\r\n",
)

HEARTBEAT, NOTIFY_ROLE = 904, 1008
_ONEWAY = 2
_HOUR_MS = 3_600_000


async def forged_slave(cluster: Cluster, master_host: str, broker_id: int, seconds: float) -> None:
    """Claim at the HA port to be `broker_id`, and acknowledge everything that arrives."""
    with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        over = cluster.network.socket("stranger")
        reader, writer = await wire.open_stream(f"{master_host}:{HA_PORT}", over=over)
        try:
            async with asyncio.timeout(seconds):
                writer.write(struct.pack(">ihhq", 1, 0, 0, broker_id))
                state, size, end, _ = struct.unpack(">iiqi", await reader.readexactly(20))
                if state != 1:
                    return
                await reader.readexactly(size)
                while True:
                    writer.write(struct.pack(">iq", 2, end))
                    await writer.drain()
                    state, size, offset, _, _, _ = struct.unpack(">iiqiqq", await reader.readexactly(36))
                    await reader.readexactly(size)
                    end = max(end, offset + size) + (1 << 20)
        finally:
            writer.transport.abort()


async def forged_notices(cluster: Cluster, state: GroupState) -> None:
    """Notify each replica of elections that never took place: of no master, of itself, of us."""
    stories = (
        {"masterEpoch": 2**31 - 1, "syncStateSetEpoch": 2**31 - 1},
        None,
        {
            "masterAddress": f"{cluster.network.addresses['stranger']}:{BROKER_PORT}",
            "masterBrokerId": 77,
            "masterEpoch": state.master_epoch + 5,
            "syncStateSetEpoch": state.set_epoch + 5,
        },
    )
    for broker_id, address in state.addresses.items():
        for story in stories:
            fields = story or {
                "masterAddress": address,
                "masterBrokerId": broker_id,
                "masterEpoch": 2**31 - 2,
                "syncStateSetEpoch": 2**31 - 2,
            }
            with suppress(OSError):
                async with _stranger(cluster, address) as writer:
                    body = b'{"syncStateSet":[%d],"syncStateSetEpoch":9}' % broker_id
                    writer.write(wire.frame(NOTIFY_ROLE, fields, body, flag=_ONEWAY))
                    await writer.drain()


async def forged_heartbeats(cluster: Cluster, state: GroupState, count: int) -> None:
    """Heartbeats in the master's name with a lease of an hour; each connection closes after its heartbeat."""
    fields = {
        "clusterName": CLUSTER,
        "brokerName": GROUP,
        "brokerId": state.master,
        "brokerAddr": state.master_address,
        "epoch": state.master_epoch,
        "maxOffset": 1 << 40,
        "confirmOffset": 1 << 40,
        "heartbeatTimeoutMills": 24 * _HOUR_MS,
        "writeLeaseMillis": _HOUR_MS,
    }
    for _ in range(count):
        for controller in cluster.controllers:
            with suppress(OSError):
                async with _stranger(cluster, f"{controller.address}:{CONTROLLER_PORT}") as writer:
                    writer.write(wire.frame(HEARTBEAT, fields, flag=_ONEWAY))
                    await writer.drain()


async def noise(cluster: Cluster, rng: random.Random) -> None:
    """Random bytes behind plausible openings, to every port; the connections stay open a while."""
    ports = {
        **dict.fromkeys((node.address for node in cluster.controllers), (CONTROLLER_PORT, RAFT_PORT)),
        **dict.fromkeys((node.address for node in cluster.replicas), (BROKER_PORT, HA_PORT)),
        cluster.name_server.address: (NAMESRV_PORT,),
    }
    async with AsyncExitStack() as open_until_all_are_sent:
        for host, port in [(host, port) for host, all_ports in ports.items() for port in all_ports]:
            data = rng.choice(_OPENINGS) + rng.randbytes(rng.choice((0, 3, 500, 70_000)))
            with suppress(OSError, TimeoutError):
                stranger = _stranger(cluster, f"{host}:{port}")
                writer = await open_until_all_are_sent.enter_async_context(stranger)
                writer.write(data)
        await asyncio.sleep(rng.uniform(0, 1))


@asynccontextmanager
async def _stranger(cluster: Cluster, address: str) -> AsyncIterator[asyncio.StreamWriter]:
    over = cluster.network.socket("stranger")
    _, writer = await wire.open_stream(address, over=over)
    try:
        yield writer
    finally:
        writer.close()


ODD_PROPERTIES = (
    {"PAD": "\0" * 600},
    {"PAD": "x" + "\0" * 3000 + "x"},
    {"PAD\0": "x"},
    {"binary": "\0\x03\x04" * 400},
    {"TRAN_MSG": "true"},
    {"DELAY": "99"},
    {"DELAY": "-1"},
    {"INNER_NUM": "3"},
)
ODD_FLAGS = (0x80, 0x4, 0x8, 0xC, 0x10, 0x20, 0x30, 0x40, 0x7FFFFFFF, -1)


def odd_messages(topic: str, queue: int, number: int) -> tuple[dict[str, object], bytes]:
    """Header and body of a message that no honest client sends; the broker may accept it or not."""
    properties = ODD_PROPERTIES[number % len(ODD_PROPERTIES)] if number % 2 else {"UNIQ_KEY": f"odd{number}"}
    flags = 0 if number % 2 else ODD_FLAGS[number // 2 % len(ODD_FLAGS)]
    fields: dict[str, object] = wire.send_fields(topic, queue, dict(properties), sys_flag=flags)
    return fields, ODD + b"\0" * (600 * (number % 5))
