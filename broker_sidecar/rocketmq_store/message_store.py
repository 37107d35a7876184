"""The store of a broker: the one object of this package that the broker talks to (the sidecar uses segments.py and
writer_lock.py).

Synchronous and quick; called from the broker's event loop. What takes a disk's time (sync, preallocation, deleting)
runs in the thread of flush.py. Appending needs the writer lock (`writer`), reading and dispatching do not.

A life:

    store = MessageStore(settings)
    store.writer.acquire(); recovered = store.open(); store.writer.release()      # Hello
    slave:   store.extend(max_offset, confirm_offset) at each Replicated
    Prepare: store.writer.acquire(); max_offset = store.cut_tail()                # Prepared
    master:  store.append(draft, now_ms) ...; store.dispatch(confirm_offset) at each Replication
    Release: store.max_offset; await flusher.idle(); store.writer.release()       # Released
    Truncate: store.truncate(offset)                                              # Truncated
    end:     await flusher.stop(); store.close()
"""

from collections.abc import Collection, Sequence

from rocketmq_store.model import Appended, Draft, GetResult, Recovered, StoreSettings
from rocketmq_store.writer_lock import FILE_NAME, WriterLock


class MessageStore:
    """See the module. Not thread-safe."""

    def __init__(self, settings: StoreSettings) -> None:
        self.settings = settings
        self.writer = WriterLock(settings.root / FILE_NAME)

    # Life

    def open(self) -> Recovered:
        """Recover what is on disk and be ready. The writer lock must be held: a torn tail is cut off.

        Raises:
            StoreDamagedError: files that this store cannot be; the text names the file and the way out.
            StoreInUseError: another broker (ours or Java's) runs on this folder.
            StoreFullError, OSError: the disk.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Make everything durable and mark the stop as orderly. Releases the writer lock if it is held."""
        raise NotImplementedError

    # The log's bounds, in bytes

    @property
    def min_offset(self) -> int:
        raise NotImplementedError

    @property
    def max_offset(self) -> int:
        """End of what is written; on a slave not always a record's end."""
        raise NotImplementedError

    @property
    def confirm_offset(self) -> int:
        """Consumers see the messages that end here or before."""
        raise NotImplementedError

    @property
    def flushed_offset(self) -> int:
        """The log is durable up to here."""
        raise NotImplementedError

    @property
    def dispatched_offset(self) -> int:
        """The consume queues hold the messages before it."""
        raise NotImplementedError

    # Master

    def append(self, draft: Draft, now_ms: int) -> Appended:
        """Store one message; visible to consumers after `dispatch`.

        Raises:
            MessageIllegalError, PropertiesSizeExceededError: nothing was stored, nor ever will be.
            StoreFullError: nothing was stored; try later.
            NotWriterError: not the writer.
        """
        raise NotImplementedError

    def append_batch(self, drafts: Sequence[Draft], now_ms: int) -> Appended:
        """Store several messages of one topic and queue with consecutive queue offsets, all in one file, all or none.
        Raises as `append`."""
        raise NotImplementedError

    def cut_tail(self) -> int:
        """On becoming master, with the writer lock: go over what was not dispatched yet, cut the log behind the last
        whole record, know every queue's next offset. Returns the log's max offset; `OSError`."""
        raise NotImplementedError

    # Slave

    def extend(self, max_offset: int, confirm_offset: int) -> set[tuple[str, int]]:
        """The sidecar has appended; dispatches as `dispatch(confirm_offset)` does and returns the same."""
        raise NotImplementedError

    def truncate(self, offset: int) -> None:
        """Forget, durably, everything at and behind `offset`, before the log is cut there (by the sidecar).
        Raises `OSError`."""
        raise NotImplementedError

    # Dispatch and reading

    def dispatch(self, confirm_offset: int) -> set[tuple[str, int]]:
        """Make the messages that end at or before `confirm_offset` visible. Returns the (topic, queue id) that have new
        ones. A `confirm_offset` lower than before is taken over for `confirm_offset` but takes nothing back.

        Raises:
            StoreFullError: no room in the consume queues; call again later, nothing is lost. Sends are refused
                meanwhile.
        """
        raise NotImplementedError

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int = 32,
        max_bytes: int = 262_144,
        tag_codes: Collection[int] = (),
    ) -> GetResult:
        """Messages of a queue from the queue offset `offset`. `tag_codes`: Java hash codes of the tags wanted, empty
        for all. At least one message if there is one, however large."""
        raise NotImplementedError

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The record that begins at `physical_offset`; None if none does (it is checked, CRC included). Query by
        message id, CONSUMER_SEND_MSG_BACK."""
        raise NotImplementedError

    def record_of(self, topic: str, queue_id: int, offset: int) -> memoryview | None:
        """The record at a queue offset; None if the queue does not have it."""
        raise NotImplementedError

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(min, max) queue offsets; max is one behind the last visible message. (0, 0) for an unknown queue."""
        raise NotImplementedError

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """What the next message appended to the queue gets; at least the max of `queue_bounds` (GET_MAX_OFFSET with
        committed=false)."""
        raise NotImplementedError

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False) -> int:
        """SEARCH_OFFSET_BY_TIMESTAMP: the first queue offset stored at or after `timestamp` (ms), the max offset if
        there is none; `upper`: the last one stored at or before it."""
        raise NotImplementedError

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """storeTimestamp (ms) of the message at a queue offset, -1 if there is none (GET_EARLIEST_MSG_STORETIME with
        the min offset)."""
        raise NotImplementedError

    def queues(self) -> dict[str, list[int]]:
        """Topics with the ids of their queues that have files."""
        raise NotImplementedError

    def delete_topic(self, topic: str) -> None:
        """Forget a topic's consume queues; its messages go with the log's files."""
        raise NotImplementedError

    # Housekeeping

    def flush(self) -> None:
        """Make everything written so far durable, in this thread: orderly stops and tests; else flush.py."""
        raise NotImplementedError

    def retain(self, now_ms: int, hour: int) -> int:
        """Delete expired files; `hour` of the local day for deleteWhen. Returns the log's min offset. Call every 10 s."""
        raise NotImplementedError

    @property
    def refuses(self) -> str | None:
        """Why appends are refused at present (disk full or nearly), None if they are not."""
        raise NotImplementedError
