"""A slave's connection by itself: what its end leaves behind."""

import gc
import socket
from pathlib import Path

from rocketmq_formats.replication.frames import SlaveHandshake, encode_master_handshake
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_sidecar.domain.replication.ha_slave import SlaveSession
from rocketmq_sidecar.replication.epoch_store import EpochStore
from rocketmq_sidecar.replication.ha_client import MasterConnection
from tests.sidecar.replication.replica_kit import FILE_SIZE, Replica


def connected(replica: Replica, store: EpochStore, sock: socket.socket) -> MasterConnection:
    sock.setblocking(False)
    session = SlaveSession(
        SlaveHandshake(1, sync_from_last_file=False, async_learner=False),
        followed_epoch=1,
        epochs=EpochList(),
        min_offset=0,
        max_offset=0,
        confirm_offset=0,
        file_size=FILE_SIZE,
    )
    return MasterConnection(
        sock,
        session,
        files=replica.files,
        epoch_store=store,
        truncate_broker=replica._truncate,
        on_replicated=lambda *_: None,
        strict=True,
        sync_flush=False,
        heartbeat_interval=1.0,
        housekeeping_interval=3.0,
        master_silence=2.0,
    )


async def test_a_connection_that_ends_before_its_work_has_begun_leaves_nothing(tmp_path: Path) -> None:
    # Found by the simulation: a coroutine that was never awaited, reported by whatever collects garbage next.
    replica = Replica(tmp_path, 1)
    store = EpochStore(tmp_path / "epochFileCheckpoint")
    ours, master = socket.socketpair()
    connection = connected(replica, store, ours)
    master.sendall(encode_master_handshake(0, EpochList.of([(1, 0)])))
    connection.start()
    connection._on_readable()  # as the loop does, with the end in the same turn
    connection.end(ConnectionError("stopped"))
    await connection.stopped()
    master.close()
    store.close()
    gc.collect()
    assert replica.truncations == []


async def test_a_master_that_does_not_answer_the_handshake_may_be_of_an_older_release(tmp_path: Path) -> None:
    """RocketMQ 5.0.0 and 5.1.0 have a longer handshake, and wait for the rest of ours."""
    store = EpochStore(tmp_path / "epochFileCheckpoint")
    ours, master = socket.socketpair()
    connection = connected(Replica(tmp_path, 1), store, ours)
    connection.start()
    connection.last_read -= 3.1
    connection._tick()
    assert "it may be older than 5.1.1" in str(connection.reason)
    await connection.stopped()
    master.close()
    store.close()


async def test_a_master_that_hangs_is_not_heard_until_its_next_byte(tmp_path: Path) -> None:
    store = EpochStore(tmp_path / "epochFileCheckpoint")
    ours, master = socket.socketpair()
    ours.setblocking(False)
    connection = connected(Replica(tmp_path, 1), store, ours)
    told: list[bool] = []
    connection.on_heard = told.append
    connection.start()
    connection.last_read -= 1.9
    connection._tick()
    assert told == [], "a heartbeat is late"
    connection.last_read -= 0.2
    connection._tick()
    connection._tick()
    assert told == [False]
    master.send(encode_master_handshake(0, EpochList.of([(1, 0)]))[:1])
    connection._on_readable()
    assert told == [False, True]
    assert not connection.ended.is_set(), "it is the same connection"
    connection.end(ConnectionError("stopped"))
    await connection.stopped()
    master.close()
    store.close()
