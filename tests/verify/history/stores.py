"""Groups of `faults` written as stores, the way brokers leave them."""

from pathlib import Path

from rocketmq_formats.store.consume_queue import pack_units
from rocketmq_formats.store.segment_names import segment_name
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.sources.work import Place
from tests.commitlog.kit import save_small
from tests.verify.planted.faults import SEGMENT, Group, Message, Replica

TOPIC, QUEUE = "Orders", 3
UNITS = 200
"""Of a file of a consume queue."""


def save(replica: Replica, messages: list[Message], root: Path) -> Place:
    """Its store; the place where it can be read."""
    folder = root / "commitlog"
    folder.mkdir(parents=True)
    for start in replica.log().segments:
        data = bytes(replica.data[start : start + SEGMENT]).ljust(SEGMENT, b"\0")
        (folder / segment_name(start)).write_bytes(data[: replica.lost.get(start, SEGMENT)])
    save_small(root, confirmed=replica.confirm, epochs=tuple(replica.epochs), broker_id=replica.broker_id)
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(f'{{"topicConfigTable":{{"{TOPIC}":{{}}}}}}')
    units = [(one.offset, one.size, 0) for one in messages if one.end <= replica.end]
    queue = root / "consumequeue" / TOPIC / str(QUEUE)
    queue.mkdir(parents=True)
    for first in range(0, len(units), UNITS):
        (queue / segment_name(first * 20)).write_bytes(
            pack_units(units[first : first + UNITS]).ljust(UNITS * 20, b"\0")
        )
    return Place(ReplicaName(replica.name), f"files:{root}")


def save_all(group: Group, folder: Path) -> tuple[Place, ...]:
    """Every replica of the group."""
    return tuple(save(replica, group.messages, folder / replica.name) for replica in group.replicas)
