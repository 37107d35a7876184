"""The state that a stopped member would restart with, computed from its files."""

from collections.abc import Collection
from pathlib import Path

from rocketmq_controller.domain.model import canonical_bytes
from rocketmq_controller.log.state_machine import ControllerStateMachine
from rocketmq_controller.raft.consensus.pysyncobj_adapter import REGULAR
from rocketmq_controller.raft.storage.store import open_store


def state_on_disk(folder: Path, member: str, others: Collection[str]) -> bytes:
    """Snapshot and all entries of the journal applied, committed or not; equal states give equal bytes."""
    store = open_store(folder, member, others)
    machine = ControllerStateMachine()
    try:
        snapshot = store.snapshots.load()
        if snapshot is not None:
            machine.load(snapshot.data)()
        for command, index, _term in store.journal[:]:
            if command[:1] == REGULAR and (snapshot is None or index > snapshot.index):
                machine.apply(index, command[1:])
    finally:
        store.close()
    return canonical_bytes(machine.groups)
