"""Parameters and results of the store; used by the broker and by the store's own parts."""

from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from rocketmq_settings.broker import BrokerKeys

_KEYS: Final = BrokerKeys()


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The store's settings; the broker fills them from the RocketMQ keys in parentheses."""

    root: Path
    """(storePathRootDir)"""
    commit_log: Path | None = None
    """(storePathCommitLog) None: `{root}/commitlog`."""
    file_size: int = _KEYS.mapped_file_size_commit_log
    """(mappedFileSizeCommitLog) bytes."""
    consume_queue_file_size: int = _KEYS.mapped_file_size_consume_queue
    """(mappedFileSizeConsumeQueue, which counts units) bytes, a multiple of 20."""
    max_message_size: int = _KEYS.max_message_size
    """(maxMessageSize) bytes of a body, and of a batch's bodies together."""
    delay_levels: str = _KEYS.message_delay_level
    """(messageDelayLevel)"""
    file_reserved_hours: int = _KEYS.file_reserved_time
    """(fileReservedTime)"""
    delete_when: str = _KEYS.delete_when
    """(deleteWhen) hours of the day, separated by `;`."""
    disk_max_used_ratio: int = _KEYS.disk_max_used_space_ratio
    """(diskMaxUsedSpaceRatio) percent: above it expired files go at any hour."""
    disk_refuse_ratio: float = _KEYS.disk_space_warning_level_ratio / 100
    """(diskSpaceWarningLevelRatio) part of the disk; at and above it writes are refused."""
    disk_clean_ratio: float = _KEYS.disk_space_clean_forcibly_ratio / 100
    """(diskSpaceCleanForciblyRatio) part of the disk; at and above it the oldest files go before their time."""
    in_memory_ratio: int = _KEYS.access_message_in_memory_max_ratio
    """(accessMessageInMemoryMaxRatio) percent of the machine's memory that is taken to be in the page cache."""
    max_bytes_in_memory: int = _KEYS.max_transfer_bytes_on_message_in_memory
    """(maxTransferBytesOnMessageInMemory)"""
    max_count_in_memory: int = _KEYS.max_transfer_count_on_message_in_memory
    """(maxTransferCountOnMessageInMemory)"""
    max_bytes_on_disk: int = _KEYS.max_transfer_bytes_on_message_in_disk
    """(maxTransferBytesOnMessageInDisk)"""
    max_count_on_disk: int = _KEYS.max_transfer_count_on_message_in_disk
    """(maxTransferCountOnMessageInDisk)"""

    @property
    def commit_log_path(self) -> Path:
        return self.commit_log or self.root / "commitlog"


class Draft(msgspec.Struct, kw_only=True, gc=False):
    """A message to append. Not frozen, for speed only; the store does not change it."""

    topic: bytes
    """UTF-8; the topic to store it under (SCHEDULE_TOPIC_XXXX for a delayed one, which the broker arranges)."""
    queue_id: int
    body: bytes | memoryview
    properties: bytes = b""
    """`name 0x01 value 0x02` repeated, at most 32767 bytes."""
    flag: int = 0
    sys_flag: int = 0
    """As the client sent it; the bits of the hosts' address families are set by the store."""
    born_timestamp: int = 0
    """ms"""
    born_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
    """ip (4 or 16 bytes) + port (i32)"""
    store_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
    """This broker: ip (4 or 16 bytes) + port (i32)"""
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where a message went; of a batch, where its first message went."""

    offset: int
    """Physical offset."""
    end: int
    """Behind its last byte (of a batch: of the last message): durable and replicated once the flushed and the
    acknowledged offset are here."""
    queue_offset: int
    message_id: str
    """Server id: hex of store host and physical offset; of a batch: ids joined by commas."""
    store_timestamp: int
    """ms"""
    count: int = 1


class GetStatus(IntEnum):
    """Names as in rocketmq-all-5.3.3: GetMessageStatus.java."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8


class GetResult(msgspec.Struct, frozen=True, gc=False):
    status: GetStatus
    next_offset: int
    """Where to continue (nextBeginOffset), as a master answers. A slave answers with the requested offset unless the
    status is FOUND, NO_MATCHED_MESSAGE, MESSAGE_WAS_REMOVING or OFFSET_FOUND_NULL (nextOffsetCorrection).
    """
    min_offset: int
    max_offset: int
    """Of the queue."""
    records: list[memoryview] = msgspec.field(default_factory=list)
    """Stored records, byte for byte, in order: pieces of the mapped log, to be sent without a copy. Neighbours in the
    log come as one piece. Valid while they are referenced."""
    count: int = 0
    """Messages in `records`."""
    size: int = 0
    """Bytes in `records`."""
    lagging: bool = False
    """The messages are so far behind that they are probably not in memory (suggestWhichBrokerId of a slave)."""


class Stop(NamedTuple):
    """A place in the log where no whole record is; no message behind it becomes visible."""

    offset: int
    reason: str


class Recovered(msgspec.Struct, frozen=True):
    """The result of a recovery."""

    min_offset: int
    max_offset: int
    """End of the last whole record."""
    confirm_offset: int
    """As the checkpoint file has it, within min and max."""
    clean: bool
    """The last stop was an orderly one."""
    cut: int
    """Offset of a torn tail that was cut off, -1 if there was none."""
    check_from: int
    """After an unclean stop: where to start checking for damage that recovery does not see, because it trusts what was
    durable (`MessageStore.log_check`): about the last files, as an official broker reads then. -1: not needed."""
