"""The bytes of a snapshot file. Pure.

A snapshot without members is written as version 2, which releases before there were configurations read as well.
"""

import struct
import zlib

from rocketmq_controller.raft import configuration
from rocketmq_controller.raft.ports import Snapshot
from rocketmq_controller.raft.storage.storage_codec import CodecError, check_prefix

SNAPSHOT_MAGIC = b"RMQRSNAP"
SNAPSHOT_HEADER = struct.Struct(
    "<"
    "8s"  #  0 magic
    "I"  #   8 version
    "I"  #  12 CRC of the header's bytes from 16 on
    "Q"  #  16 index of the last entry applied
    "Q"  #  24 its term
    "Q"  #  32 length of the content in bytes: the members if there are any, then the state
    "8s"  #  40 rolling hash of the log up to that entry
    "16s"  # 48 lineage
    "Q"  #  64 flags: 1 the hash is known, 2 has a lineage
)  #        72 content in blocks: u32 CRC of the header's CRC field and all content up to the block's end, block
SNAPSHOT_VERSION = 2
SNAPSHOT_MEMBERS = struct.Struct(
    "<"
    "Q"  #  72 index of the entry that the members come from
    "Q"  #  80 length of the members in bytes
)  #        88 content in blocks
SNAPSHOT_3_HEADER = struct.Struct(SNAPSHOT_HEADER.format + SNAPSHOT_MEMBERS.format[1:])
"""Version 3: with members."""
SNAPSHOT_HAS_CHAIN, SNAPSHOT_HAS_LINEAGE = 1, 2
SNAPSHOT_1_HEADER = struct.Struct("<8sIIQQQ")
"""Version 1: without hash, lineage and flags."""
LAYOUTS = {1: SNAPSHOT_1_HEADER, 2: SNAPSHOT_HEADER, 3: SNAPSHOT_3_HEADER}
SNAPSHOT_BLOCK_SIZE = 64 * 1024
BLOCK_CRC = struct.Struct("<I")


def encode_snapshot(snapshot: Snapshot) -> bytes:
    members, content = snapshot.members, snapshot.data
    version, layout = SNAPSHOT_VERSION, SNAPSHOT_HEADER
    appended: tuple[int, ...] = ()
    if members is not None:
        encoded = configuration.encode(members)
        version, layout, appended = 3, SNAPSHOT_3_HEADER, (members.index, len(encoded))
        content = encoded + content
    fields = (
        snapshot.index,
        snapshot.term,
        len(content),
        snapshot.chain,
        snapshot.lineage or b"",
        SNAPSHOT_HAS_CHAIN * bool(snapshot.chain) | SNAPSHOT_HAS_LINEAGE * (snapshot.lineage is not None),
        *appended,
    )
    crc = zlib.crc32(layout.pack(SNAPSHOT_MAGIC, version, 0, *fields)[16:])
    parts: list[bytes | memoryview] = [layout.pack(SNAPSHOT_MAGIC, version, crc, *fields)]
    view = memoryview(content)
    for start in range(0, len(content), SNAPSHOT_BLOCK_SIZE):
        block = view[start : start + SNAPSHOT_BLOCK_SIZE]
        crc = zlib.crc32(block, crc)
        parts += [BLOCK_CRC.pack(crc), block]
    return b"".join(parts)


def decode_snapshot(data: bytes) -> Snapshot:
    """Raises `CodecError`, with the offset of the block that is wrong."""
    if len(data) < SNAPSHOT_1_HEADER.size:
        raise CodecError(len(data), "the snapshot ends within its header")
    magic, version, crc = struct.unpack_from("<8sII", data)
    layout = LAYOUTS.get(version, SNAPSHOT_3_HEADER)
    check_prefix(magic, SNAPSHOT_MAGIC, version, "snapshot", version if version in LAYOUTS else max(LAYOUTS))
    if zlib.crc32(data[16 : layout.size]) != crc or len(data) < layout.size:
        raise CodecError(12, "the snapshot's header does not match its checksum")
    _, _, _, index, term, length, *rest = layout.unpack_from(data)
    chain, lineage, flags, *appended = rest or (b"", b"", 0)
    blocks: list[memoryview] = []
    view = memoryview(data)
    offset, missing = layout.size, length
    while missing:
        size = min(missing, SNAPSHOT_BLOCK_SIZE)
        start = offset + BLOCK_CRC.size
        if start + size > len(data):
            raise CodecError(offset, f"the snapshot ends {missing} bytes early")
        block = view[start : start + size]
        crc = zlib.crc32(block, crc)
        if BLOCK_CRC.unpack_from(data, offset)[0] != crc:
            raise CodecError(offset, "a block of the snapshot does not match its checksum")
        blocks.append(block)
        offset, missing = start + size, missing - size
    if offset != len(data):
        raise CodecError(offset, "bytes after the snapshot's end")
    content, members = b"".join(blocks), None
    if appended:
        since, size = appended
        try:
            members = configuration.decode(content[:size], since)
        except configuration.ConfigurationError as error:
            raise CodecError(layout.size, str(error)) from error
        content = content[size:]
    return Snapshot(
        index,
        term,
        content,
        chain if flags & SNAPSHOT_HAS_CHAIN else b"",
        lineage if flags & SNAPSHOT_HAS_LINEAGE else None,
        members,
    )
