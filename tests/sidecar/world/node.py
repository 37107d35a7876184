"""One replica's place in the world: its disk, its sidecar's machine, and a broker of a few lines that keeps the writer
lock honest."""

from collections import deque
from pathlib import Path

from rocketmq_formats.codes import RequestCode
from rocketmq_formats.replica_link import (
    Following,
    FromSidecar,
    Grant,
    Held,
    Hold,
    HoldKind,
    Lease,
    LogState,
    MasterKnown,
    NoRole,
    Others,
    Prepare,
    Prepared,
    Release,
    Released,
    Welcome,
)
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_sidecar.control.meta_files import IdentityFiles
from rocketmq_sidecar.domain.actions import (
    BeginEpoch,
    Follow,
    ForgetApplied,
    HandedOver,
    LogLine,
    SaveApplied,
    SaveControllers,
    SaveIdentity,
    Stored,
    WatchCatchUp,
)
from rocketmq_sidecar.domain.control.fence import Fence
from rocketmq_sidecar.domain.control.machine import ControlMachine
from tests.sim.disk import SimDisk

CLUSTER, NAME = "C", "broker-a"
FOLDER = Path("/store")


class Broker:
    """What a broker process is to its sidecar."""

    def __init__(self, node: "Node") -> None:
        self.node = node
        self.role = "none"
        self.epoch = 0
        self.lease_until = float("-inf")
        self.broker_id: int | None = None
        self.reason = ""
        self.inbox: deque[FromSidecar] = deque()
        self.hung = False
        self.held: HoldKind | None = None
        self.master_known = False
        self.others: Others | None = None
        """What a master was told last of whom to ask."""
        self.deaf_to_holds = False
        """Answers none of them."""

    def lose_link(self) -> None:
        self.fence("link lost")
        self.epoch, self.held = 0, None

    def fence(self, reason: str) -> None:
        self.role, self.reason, self.lease_until = "none", reason, float("-inf")
        if self.node.lock == "broker":
            self.node.lock = None

    def obey(self, message: FromSidecar) -> Prepared | Released | Held | None:
        node = self.node
        match message:
            case Welcome():
                assert self.broker_id in {None, message.broker_id}
                self.broker_id = message.broker_id
            case Prepare():
                assert message.epoch > self.epoch or self.role != "master", "an epoch is prepared once"
                self.role, self.epoch, self.lease_until = "preparing", message.epoch, float("-inf")
                assert node.lock in {None, "broker"}, "OneWriter: replication still has the lock"
                node.lock = "broker"
                return Prepared(message.epoch, node.max_offset)
            case Grant():
                assert (self.role, self.epoch) == ("preparing", message.epoch)
                assert node.epochs[-1] == message.epoch, "the epoch is durable before it is granted"
                self.role, self.lease_until = "master", message.lease_until
            case Lease():
                assert (self.role, self.epoch) == ("master", message.epoch)
                self.lease_until = message.until
            case Hold():
                self.held = message.kind
                return None if self.deaf_to_holds else Held(message.serial, node.max_offset)
            case Release():
                self.fence("released")
                return Released(node.max_offset)
            case Following():
                assert self.role != "master", "a master is released first"
                self.fence("following")
                self.role, self.epoch, self.master_known = "slave", message.epoch, True
            case MasterKnown():
                assert self.role == "slave"
                self.master_known = message.known
            case NoRole():
                self.fence(message.reason)
            case Others():
                self.others = message
            case _:
                raise AssertionError(message)
        return None


class Node:
    """One replica's place: disk and log stay, processes and address come and go."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.disk = SimDisk()
        self.disk.mkdir(FOLDER)
        self.lives = 0
        self.connection = 0
        self.broker_lives = 0
        self.machine: ControlMachine | None = None
        self.broker: Broker | None = None
        self.linked = False
        self.links = 0
        self.hung = False
        """The sidecar."""
        self.lock: str | None = None
        self.max_offset = 100
        self.mark = 100
        """How far its log reached, as it remembers."""
        self.unproven: str | None = None
        """It lost power, as it remembers."""
        self.log = LogState()
        """What its broker knows of the log's bytes."""
        self.epochs: list[int] = [-1]
        self.replicating: Follow | BeginEpoch | None = None
        self.asked: list[RequestCode] = []
        self.told: list[FromSidecar] = []
        self.notes: list[LogLine] = []
        self.handed: list[HandedOver] = []
        self.priority = 2**31 - 1
        self.fence: Fence | None = None
        """What its file holds."""
        self.watched: WatchCatchUp | None = None
        self.lags = False
        """As a slave: it does not have the end of its master's log."""
        self.begin_fails: str | None = None
        self.crashes = 0
        self.steps = 0
        self.crash_at_step: int | None = None
        """Kill the sidecar before the step with this number."""

    @property
    def address(self) -> str:
        return f"10.0.0.{self.number}:{10911 + 10 * self.broker_lives}"

    @property
    def broker_id(self) -> int:
        assert self.machine is not None
        assert self.machine.session.broker_id is not None
        return self.machine.session.broker_id

    def files(self) -> IdentityFiles:
        return IdentityFiles(FOLDER, cluster_name=CLUSTER, broker_name=NAME, disk=self.disk)

    def store(self, action: Stored) -> str | None:
        """Why it could not be kept, None where it is."""
        files = self.files()
        try:
            match action:
                case SaveApplied(applied):
                    files.save_applied(applied)
                case SaveIdentity(identity):
                    files.save_identity(identity)
                case ForgetApplied():
                    files.forget_applied()
                case SaveControllers(group):
                    files.save_controllers(group)
        except StorageError as error:
            return str(error)
        return None
