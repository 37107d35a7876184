"""Reads bytes of an official master's log for a repair, over a separate connection to its HA port: Java serves no
requests about its log, but sends all of it from any offset on. `log_audit` uses this in place of an `AuditLink`.

The connection is that of an asynchronous learner with a brokerId that no replica has. So it never enters the
SyncStateSet and never counts for the confirm offset, whatever it acknowledges. Source: rocketmq-all-5.3.3:
AutoSwitchHAConnection.java, AutoSwitchHAService.java.
"""

import asyncio
from typing import Final

import structlog

from rocketmq_formats.addresses import parse_address
from rocketmq_formats.replication.frames import (
    HANDSHAKE_HEADER_SIZE,
    TRANSFER_HEADER_SIZE,
    HAConnectionState,
    MasterHandshake,
    SlaveHandshake,
    TransferHeader,
    decode_master_packet,
    encode_ack,
    encode_slave_handshake,
)
from rocketmq_runtime import lookups

log = structlog.get_logger()

LEARNER: Final = SlaveHandshake(broker_id=2**63 - 1, async_learner=True)
SECONDS: Final = 8.0
"""For one read. A master that does not hold the requested bytes sends only heartbeats."""


class HaReader:
    """Opens one connection for each read."""

    def __init__(self, address: str) -> None:
        """`address`: of the master's HA port."""
        self._address = address

    async def read(self, offset: int, length: int) -> bytes | None:
        """These bytes; None if the log does not hold all of them. Raises `OSError`, `TimeoutError`, `FrameError`."""
        async with asyncio.timeout(SECONDS):
            reader, writer = await lookups.first_of(
                *parse_address(self._address), lambda place: asyncio.open_connection(*place.address[:2])
            )
            try:
                writer.write(encode_slave_handshake(LEARNER))
                master = await _packet(reader)
                if not isinstance(master, MasterHandshake) or master.max_offset < offset + length:
                    return None
                writer.write(encode_ack(offset))  # Java sends from there on
                return await _bytes(reader, offset, length)
            except asyncio.IncompleteReadError as error:
                raise ConnectionResetError("the master closed the connection") from error
            finally:
                writer.close()

    async def report_damage(self, offset: int) -> None:
        """Java has no such request."""
        log.warning("the official master's log is damaged and it cannot be notified: check its disk", offset=offset)


async def _bytes(reader: asyncio.StreamReader, offset: int, length: int) -> bytes | None:
    data = b""
    while len(data) < length:
        header = await _packet(reader)
        if not isinstance(header, TransferHeader):
            continue  # it may repeat its handshake
        if header.size and header.offset != offset + len(data):
            return None  # the master's log begins after the requested offset
        data += await reader.readexactly(header.size)
    return data[:length]


async def _packet(reader: asyncio.StreamReader) -> MasterHandshake | TransferHeader:
    """The next packet, without its body."""
    data = await reader.readexactly(HANDSHAKE_HEADER_SIZE)
    while (found := decode_master_packet(data, 0, len(data))) is None:
        data += await reader.readexactly(_missing(data))
    return found[0]


def _missing(data: bytes) -> int:
    """Bytes still missing from the packet that begins with `data` (at least `HANDSHAKE_HEADER_SIZE` bytes)."""
    if HAConnectionState(int.from_bytes(data[:4])) is HAConnectionState.TRANSFER:
        return TRANSFER_HEADER_SIZE - len(data)
    return HANDSHAKE_HEADER_SIZE + int.from_bytes(data[4:8]) - len(data)
