"""A group of Java brokers and its controllers as the observer meets them, in virtual time and without sockets."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from rocketmq_formats.broker_identity import BrokerIdentity, encode_identity
from rocketmq_formats.remoting.controller import EpochEntry
from rocketmq_runtime.config.settings import build_settings
from rocketmq_sidecar.domain.observing.status import BrokerStatus, GroupStatus, SlaveStatus
from rocketmq_sidecar.domain.observing.verdict import Standing
from rocketmq_sidecar.observer.admin import ObserverAdmin
from rocketmq_sidecar.observer.broker import BrokerError, BrokerGoneError
from rocketmq_sidecar.observer.controllers import (
    ControllersSilentError,
    Elected,
    ElectionRefusedError,
    OtherControllersError,
)
from rocketmq_sidecar.observer.files import ReplicaFiles
from rocketmq_sidecar.observer.observer import Observer
from rocketmq_sidecar.observer.store_proof import StoreProof
from rocketmq_sidecar.settings import SidecarSettings

CLUSTER, GROUP = "C", "broker-a"
PORT = 10911
NOW_MS = 1_700_000_000_000
ANSWER = 0.005
"""Seconds that a call takes."""

STATUS = BrokerStatus(
    cluster_name=CLUSTER,
    broker_name=GROUP,
    outward_id=1,
    active=False,
    min_offset=0,
    max_offset=1000,
    epochs=(),
    refuses_until_ms=0,
    started_ms=1,
    sends_waiting=0,
    slaves=(),
    master_ha_address=None,
    last_read_ms=NOW_MS,
)
"""Of a slave."""


def now_ms() -> int:
    """The virtual wall clock."""
    return NOW_MS + round(1000 * asyncio.get_running_loop().time())


def address(broker_id: int) -> str:
    """Each observer believes its own broker on PORT, so only broker 1 can have one."""
    return f"127.0.0.1:{PORT}" if broker_id == 1 else f"10.0.0.{broker_id}:{PORT}"


class JavaBroker:
    """What one of them holds; `file` is what it would read at its next start."""

    def __init__(self, broker_id: int, *, writable_file: bool = False) -> None:
        self.broker_id = broker_id
        self.role = "slave"
        self.end = 1000
        self.waiting = 0
        self.trouble: BrokerError | None = None
        self.file = {"brokerPermission": "6", "startAcceptSendRequestTimeStamp": "0", "allAckInSyncStateSet": "true"}
        self.configuration = dict(self.file)
        self.writable_file = writable_file
        self.started = 1
        self.told: list[Mapping[str, str]] = []
        self.ha_address: str | None = None
        self.connected_to: str | None = None
        """HA address that it is connected to: it looks at `ha_address` only when it connects."""
        self.last_read_ms: int | None = None
        self.epochs = (EpochEntry(epoch=1, start_offset=0),)
        self.acks: tuple[int, ...] = ()
        """Master: of its slaves in sync."""

    def restart(self) -> None:
        """Another process; what was changed is there still if Java could write its file."""
        self.started += 1
        self.configuration = dict(self.file)

    @property
    def refuses_until_ms(self) -> int:
        return int(self.configuration["startAcceptSendRequestTimeStamp"])

    @property
    def permission(self) -> int:
        return int(self.configuration["brokerPermission"])

    @property
    def takes_sends(self) -> bool:
        return now_ms() >= self.refuses_until_ms

    def status(self) -> BrokerStatus:
        master = self.role == "master"
        return msgspec.structs.replace(
            STATUS,
            outward_id=0 if master else self.broker_id,
            active=master,
            max_offset=self.end,
            epochs=self.epochs,
            slaves=tuple(SlaveStatus("10.0.0.9", ack, in_sync=True) for ack in self.acks if master),
            sends_waiting=self.waiting,
            started_ms=self.started,
            refuses_until_ms=self.refuses_until_ms,
            master_ha_address=self.ha_address,
            last_read_ms=now_ms() if self.last_read_ms is None else self.last_read_ms,
        )


class JavaGroup:
    """Both seams of the observer: brokers and controllers. Broker 1 is master and has everything the others have."""

    def __init__(self, *, writable_file: bool = False) -> None:
        self.brokers = {one: JavaBroker(one, writable_file=writable_file) for one in (1, 2, 3)}
        self.brokers[1].role = "master"
        self.master_id: int | None = 1
        self.epoch = 1
        self.set_changes = 0
        self.in_sync = frozenset({1, 2, 3})
        self.alive = frozenset({1, 2, 3})
        self.name: str | None = "ours"
        """controllerDLegerGroup."""
        self.silent: str | None = None
        self.foreign: str | None = None
        self.refusal: str | None = None
        self.answers_elections = True
        self.on_round: Callable[[], None] = lambda: None
        self.looks = 0
        self.answer = ANSWER

    # Brokers

    async def status(self, address: str, seconds: float = 2.0) -> BrokerStatus:
        broker = await self._reached(address)
        self.looks += 1
        self.on_round()
        connected = [one for one in self.brokers.values() if one.connected_to == f"ha-{broker.broker_id}"]
        connections = tuple(SlaveStatus("10.0.0.9", one.end, in_sync=False) for one in connected)
        status = broker.status()
        return msgspec.structs.replace(status, slaves=(*status.slaves, *connections))

    async def end(self, address: str, seconds: float = 2.0) -> int:
        broker = await self._reached(address)
        self.on_round()
        return broker.end

    async def configuration(self, address: str, seconds: float = 2.0) -> Mapping[str, str]:
        return dict((await self._reached(address)).configuration)

    async def configure(self, address: str, changes: Mapping[str, str], seconds: float = 2.0) -> None:
        broker = await self._reached(address)
        broker.told.append(changes)
        broker.configuration.update(changes)
        if int(broker.configuration.get("haHousekeepingInterval", 20000)) < 0:
            broker.connected_to = broker.ha_address
        if broker.writable_file:
            broker.file.update(changes)

    async def ha_address(self, address: str, seconds: float = 2.0) -> str | None:
        broker = await self._reached(address)
        return f"ha-{broker.broker_id}" if broker.role == "master" else None

    async def set_master(self, address: str, *, ha_address: str, master_address: str) -> None:
        broker = await self._reached(address)
        broker.ha_address = ha_address
        broker.connected_to = broker.connected_to or ha_address

    async def _reached(self, where: str) -> JavaBroker:
        await asyncio.sleep(self.answer)
        broker = next(one for one in self.brokers.values() if address(one.broker_id) == where)
        if broker.trouble is not None:
            raise broker.trouble
        return broker

    def gone(self, broker_id: int) -> None:
        """Its process ends, and the controllers notice."""
        self.brokers[broker_id].trouble = BrokerGoneError("the broker does not listen")
        self.alive -= {broker_id}

    # Controllers

    async def group(self) -> GroupStatus | None:
        await asyncio.sleep(ANSWER)
        if self.silent is not None:
            raise ControllersSilentError(self.silent)
        if self.foreign is not None:
            raise OtherControllersError(self.foreign)
        return GroupStatus(
            master_id=self.master_id,
            master_epoch=self.epoch,
            sync_state_set_epoch=self.epoch + self.set_changes,
            in_sync=self.in_sync,
            addresses={one: address(one) for one in self.brokers},
            alive=self.alive,
        )

    async def elect(self, broker_id: int) -> Elected:
        await asyncio.sleep(ANSWER)
        if self.refusal is not None:
            raise ElectionRefusedError(self.refusal)
        if self.master_id is not None:
            self.brokers[self.master_id].role = "slave"
        self.brokers[broker_id].role = "master"
        self.master_id, self.epoch, self.in_sync = broker_id, self.epoch + 1, frozenset({broker_id})
        if not self.answers_elections:
            raise ControllersSilentError("no answer")
        return Elected(broker_id, self.epoch)


def settings(folder: Path, *, all_ack: bool = True) -> SidecarSettings:
    values = {
        "brokerEngine": "apache",
        "brokerClusterName": CLUSTER,
        "brokerName": GROUP,
        "listenPort": str(PORT),
        "controllerAddr": "k0:9878",
        "storePathRootDir": str(folder),
        "allAckInSyncStateSet": str(all_ack).lower(),
    }
    return build_settings(SidecarSettings, values, {}).settings


def keep_identity(folder: Path, broker_id: int = 1) -> None:
    (folder / "brokerIdentity").write_bytes(encode_identity(BrokerIdentity(CLUSTER, GROUP, broker_id)))


class Sidecar:
    """Observer and admin beside broker 1; made again it is a restart of the sidecar."""

    def __init__(self, folder: Path, group: JavaGroup, *, boot: str = "first", all_ack: bool = True) -> None:
        options = settings(folder, all_ack=all_ack)
        self.proof = StoreProof(options, boot_id=lambda: boot)
        self.observer = Observer(
            options, brokers=group, controllers=group, files=ReplicaFiles(options), proof=self.proof, now_ms=now_ms
        )
        self.admin = ObserverAdmin(self.observer, brokers=group, controllers=group, now_ms=now_ms)
        self.poll = self.observer.poll
        self.set_fenced = self.admin.set_fenced
        self.hand_over = self.admin.hand_over
        self.get_replica = self.admin.get_replica

    @property
    def standing(self) -> Standing:
        return self.observer.standing

    def start(self) -> None:
        """As the process does."""
        self.observer.start(_fail)

    async def stop(self) -> None:
        """As SIGTERM does."""
        await self.observer.stop()
        await self.admin.hand_over_at_stop()


def _fail(error: BaseException) -> None:
    raise error
