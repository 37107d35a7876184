"""A replica's delay service beside its store, in virtual time, with a group to escape to."""

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path

from rocketmq_broker.consuming.delay_service import DelayService
from rocketmq_broker.consuming.level_ages import LevelAges
from rocketmq_broker.domain.role import Durability, ReplicaRole
from rocketmq_broker.sending.escape import KEPT
from rocketmq_broker.sending.inner_writer import InnerWriter
from rocketmq_broker.tables.consumer_tables import DelayOffsets
from rocketmq_broker.traffic import Traffic
from rocketmq_formats.replica_link import Replication
from rocketmq_formats.store.message_properties import format_properties
from rocketmq_formats.topics import DELETED_TOPICS, SCHEDULE_TOPIC
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import Draft, StoreSettings
from tests.store.kit import dispatched

LEVELS = (1000, 5000)


class Outlet:
    """Implements `Escape`: the other group."""

    def __init__(self, member: "Member") -> None:
        self._member = member
        self.route_seconds = 0.0
        """Until the other group is known."""
        self.seconds = 0.0
        """Until a message is answered."""
        self.problems: deque[str | None] = deque()
        """Of the next attempts; None: PUT_OK. Afterwards always PUT_OK."""
        self.tried: list[tuple[float, bytes]] = []
        """When a message left, since the member was made, and the body."""
        self.taken: list[bytes] = []

    async def put(self, message: Draft, may_leave: Callable[[], bool]) -> str | None:
        assert self._member.on_disk == self._member.delays.escaped, "what escaped before is on disk"
        await asyncio.sleep(self.route_seconds)
        if not may_leave():
            return KEPT
        self.tried.append((self._member.now, bytes(message.body)))
        await asyncio.sleep(self.seconds)
        problem = self.problems.popleft() if self.problems else None
        if problem is None:
            self.taken.append(bytes(message.body))
        return problem


class Member:
    """Slave 2 of master m:1, until told otherwise."""

    def __init__(self, root: Path, *, escapes: bool = True, delays: DelayOffsets | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self._began = self.loop.time()
        self._closed = False
        self.root = root
        self.store = MessageStore(StoreSettings(root=root, file_size=1 << 20, consume_queue_file_size=20 * 1000))
        self.store.writer.acquire()
        self.store.open()
        self.store.cut_tail()
        dispatched(self.store)
        self.role = ReplicaRole(Durability(copies_needed=1, strict=False))
        self.role.welcomed(2)
        self.role.follow(1, "m:1")
        self.role.least_registered = 2
        self.traffic = Traffic()
        self.delays = delays or DelayOffsets()
        self.on_disk = dict(self.delays.escaped)
        self.disk_full = False
        self.saving_seconds = 0.001
        self.outlet = Outlet(self)
        self.service = DelayService(
            ages=LevelAges(levels=LEVELS, role=self.role, store=self.store),
            role=self.role,
            store=self.store,
            writer=InnerWriter(
                role=self.role,
                store=self.store,
                store_host=bytes(8),
                traffic=self.traffic,
                on_appended=lambda: None,
                clock=lambda: 0.0,
            ),
            delays=self.delays,
            counts=self.traffic.counts,
            escape=self.outlet if escapes else None,
            saved=self._saved,
            clock=lambda: 1_000_000 + int(self.loop.time() * 1000),
        )
        self.service.on_role_change()

    @property
    def now(self) -> float:
        return round(self.loop.time() - self._began, 3)

    async def _saved(self) -> None:
        await asyncio.sleep(self.saving_seconds)
        if self.disk_full:
            raise StorageError(Path("delayOffset.json"), "disk full")
        self.on_disk = dict(self.delays.escaped)

    def arrives(self, *bodies: bytes, level: int = 1, topic: str | None = "T") -> None:
        """Delayed messages are replicated and confirmed."""
        for body in bodies:
            names = {"REAL_TOPIC": topic, "REAL_QID": "0"} if topic else {}
            properties = format_properties({"UNIQ_KEY": body.decode(), "DELAY": str(level), **names})
            self._append(Draft(topic=SCHEDULE_TOPIC.encode(), queue_id=level - 1, body=body, properties=properties))

    def master_delivers(self, *bodies: bytes, level: int = 1) -> None:
        """The copies that a master delivered are replicated and confirmed."""
        for body in bodies:
            names = {"UNIQ_KEY": body.decode(), "DELAY": str(level), "REAL_TOPIC": "T", "REAL_QID": "0"}
            self._append(Draft(topic=b"T", queue_id=0, body=body, properties=format_properties(names)))

    def topic_deleted(self, topic: str = "T") -> None:
        """The record of a deletion is replicated and confirmed."""
        host = bytes(8)
        body = topic.encode()
        self._append(Draft(topic=DELETED_TOPICS.encode(), queue_id=0, body=body, born_host=host, store_host=host))

    def _append(self, draft: Draft) -> None:
        self.store.append(draft, 1_000_000 + int(self.loop.time() * 1000))
        self.service.on_visible(dispatched(self.store))

    def act(self, *, acting: bool = True) -> None:
        self.role.master_is_known(not acting)
        self.service.on_role_change()

    def lead(self, epoch: int = 2) -> None:
        """This member is elected."""
        self.role.prepare(epoch)
        self.service.on_role_change()
        self.role.grant(epoch, 1e12)
        self.role.replicated(Replication(epoch, 0, 0, 3))
        self.service.on_role_change()

    def follow(self, epoch: int = 2) -> None:
        """Another one is elected."""
        self.role.follow(epoch, "m:3")
        self.service.on_role_change()

    def stored(self) -> list[bytes]:
        """Bodies in the queue of T, those that a master delivered."""
        dispatched(self.store)
        bodies = []
        for record in self.store.records(0, self.store.max_offset):
            if record.topic == b"T":
                view = self.store.record_of("T", 0, record.queue_offset)
                assert view is not None
                bodies.append(bytes(view[record.body_start - record.position :][: record.body_length]))
        return bodies

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.service.stop()
            self.store.close()
