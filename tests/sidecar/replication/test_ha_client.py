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


async def test_a_connection_that_ends_before_its_work_has_begun_leaves_nothing(tmp_path: Path) -> None:
    # Found by the simulation: a coroutine that was never awaited, reported by whatever collects garbage next.
    replica = Replica(tmp_path, 1)
    store = EpochStore(tmp_path / "epochFileCheckpoint")
    ours, master = socket.socketpair()
    ours.setblocking(False)
    session = SlaveSession(
        SlaveHandshake(1, sync_from_last_file=False, async_learner=False),
        followed_epoch=1,
        epochs=EpochList(),
        min_offset=0,
        max_offset=0,
        confirm_offset=0,
        file_size=FILE_SIZE,
    )
    connection = MasterConnection(
        ours,
        session,
        files=replica.files,
        epoch_store=store,
        truncate_broker=replica._truncate,
        on_replicated=lambda *_: None,
        strict=True,
        sync_flush=False,
        heartbeat_interval=1.0,
        housekeeping_interval=3.0,
    )
    master.sendall(encode_master_handshake(0, EpochList.of([(1, 0)])))
    connection.start()
    connection._on_readable()  # as the loop does, with the end in the same turn
    connection.end(ConnectionError("stopped"))
    await connection.stopped()
    master.close()
    store.close()
    gc.collect()
    assert replica.truncations == []
