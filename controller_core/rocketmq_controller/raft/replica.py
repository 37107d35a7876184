"""One member of the quorum in the event loop: sockets, timers and the disk around the machine. The application's way
into Raft.

Everything that arrives in one turn of the loop (messages, proposals) is handled by one tick of the machine in the next:
one append, one sync, one message per follower. The journal's sync runs in the loop itself: it takes 0.1 ms to a few ms
on a healthy disk, and on a disk that hangs it makes this member look dead to the others, which is intended. Snapshots
are made, read and stored in a thread.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import structlog
from pysyncobj.node import Node

from rocketmq_controller.raft.configuration import Change, Configuration
from rocketmq_controller.raft.consensus.machine import RaftMachine
from rocketmq_controller.raft.consensus.pysyncobj_adapter import Clock
from rocketmq_controller.raft.errors import FatalRaftError, NotLeaderError, RaftError, TransferError, WireError
from rocketmq_controller.raft.network import messages
from rocketmq_controller.raft.network.transport import Events, TcpTransport
from rocketmq_controller.raft.ports import StateMachine
from rocketmq_controller.raft.settings import RaftSettings
from rocketmq_controller.raft.status import RaftStatus, Role
from rocketmq_controller.raft.storage.storage_errors import ForeignStoreError
from rocketmq_controller.raft.storage.store import open_store
from rocketmq_runtime.clocks import boot_clock

log = structlog.get_logger(__name__)


EARLY_SECONDS = 0.005
"""A timer may fire this much too early: a needless wake-up costs more than arming it again, unless ticks come in
thousands."""

ROUND_UP = 0.0005
"""uvloop rounds to whole milliseconds; a timer that fires just before its time would fire again."""


class Replica:
    """See the module's docstring. All methods run in the event loop that `start` ran in."""

    def __init__(
        self,
        settings: RaftSettings,
        state_machine: StateMachine,
        *,
        on_role_change: Callable[[RaftStatus], None] | None = None,
        on_fatal: Callable[[FatalRaftError], None] | None = None,
        clock: Clock = boot_clock,
        rng: random.Random | None = None,
    ) -> None:
        """`on_role_change` is called whenever role, term, known leader or `is_serving` has changed. `on_fatal` is
        called once, when this member cannot continue; the process has to stop then. `clock` and `rng` are for tests."""
        self._settings = settings
        self._state_machine = state_machine
        self._on_role_change = on_role_change
        self._on_fatal = on_fatal
        self._clock = clock
        self._rng = rng or random.Random()  # noqa: S311 - spreads elections, guards nothing
        self._machine: RaftMachine | None = None
        self._transport: TcpTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._turn_due = False
        self._reported: tuple[Role, int, Node | None, bool] | None = None
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._fatal: FatalRaftError | None = None
        self._worker = ThreadPoolExecutor(1, "raft-snapshots")
        self._connected_to: tuple[Node, ...] | None = None
        self.port = 0
        """Port that the other members reach, once started."""

    async def start(self) -> None:
        """Recover what is on disk, listen, and join the quorum.

        Raises:
            FatalRaftError: what is on disk is damaged or does not belong together; the text names file and offset.
            StorageError: the disk is full, or a file cannot be read or written.
            OSError: the port cannot be bound.
        """
        settings = self._settings
        self._loop = asyncio.get_running_loop()
        events = Events(self._receive, lambda _: self._wake(), lambda _: self._wake())
        transport = TcpTransport(settings.self_id, settings.secret, events)
        store = open_store(settings.store_path, settings.self_id, settings.others)
        try:
            self._machine = machine = RaftMachine(
                settings.self_id,
                store.first_configuration(settings.peers),
                journal=store.journal,
                snapshots=store.snapshots,
                state_machine=self._state_machine,
                transport=transport,
                clock=self._clock,
                rng=self._rng,
                timings=settings.timings,
                limits=settings.limits,
                beside=self._beside,
                joins=settings.joins,
                hints=settings.peers,
            )
            _check_addresses(settings, machine.configuration)
            transport.set_members(_addresses(settings, machine))
            self.port = await transport.start(
                settings.bind_host, settings.bind_port or settings.peers[settings.self_id][1]
            )
        except BaseException:
            store.close()
            raise
        self._transport, self._store = transport, store
        log.info("raft member started", member=settings.self_id, port=self.port, **_picture(self._machine))
        self._wake()

    async def stop(self, *, hand_over: bool) -> None:
        """Leave the quorum; with `hand_over` a leader first lets another member take over."""
        machine, transport = self._machine, self._transport
        if machine is None or transport is None:
            return
        if hand_over and self._fatal is None and machine.role is Role.LEADER and machine.connected:
            with contextlib.suppress(RaftError):
                await self.transfer_leadership(None)
        self._machine = None
        if self._timer is not None:
            self._timer.cancel()
        self._settle_waiters(leaving=True)
        machine.abandon()
        machine.goodbye()
        await transport.stop()
        await asyncio.to_thread(self._worker.shutdown, cancel_futures=True)
        if self._fatal is None:
            self._store.close()

    # -- the application's side

    @property
    def is_leader(self) -> bool:
        """Leads, has applied an entry of its own term, and its lease holds right now: local reads are as good as
        through the log."""
        return self._machine is not None and self._fatal is None and self._machine.is_leader

    def propose(self, command: bytes) -> "asyncio.Future[object]":
        """Replicate `command`; the future holds what `apply` returned here, once the command is committed and applied.

        The future fails with ProposalLostError when leadership was lost in between (the outcome is unknown), or
        NotLeaderError when it was lost before the command reached the log.

        Raises:
            NotLeaderError, OverloadedError, CommandTooLargeError: nothing was proposed.
        """
        machine = self._alive()
        future: asyncio.Future[object] = self._loop.create_future()
        machine.propose(command, partial(_settle, future))
        self._wake()
        return future

    async def barrier(self) -> None:
        """Wait until everything that was committed anywhere before this call is applied here, proven by a round to a
        majority.

        Raises:
            NotLeaderError: this member does not lead, or lost leadership since.
        """
        machine = self._alive()
        future: asyncio.Future[object] = self._loop.create_future()
        machine.barrier(partial(_settle, future))
        self._wake()
        await future

    async def transfer_leadership(self, target: str | None) -> None:
        """Hand leadership to `target`, or to the member that holds most; proposals are refused until it ends.

        Raises:
            NotLeaderError: this member does not lead.
            TransferError: it still leads; the text says why.
        """
        machine = self._alive()
        term = machine.term
        machine.transfer(target)
        self._wake()
        await self._until(lambda: not machine.transferring)
        if machine.term == term and machine.role is Role.LEADER:
            raise TransferError("the other member did not catch up or did not take over in time")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.timings.step_down):
                await self._until(lambda: machine.leader is not None)

    async def change_members(self, change: Change) -> None:
        """Have one change of the members committed.

        Raises:
            NotLeaderError, OverloadedError, MembershipError: nothing was proposed.
            ProposalLostError: leadership was lost; the outcome is unknown.
        """
        future: asyncio.Future[object] = self._loop.create_future()
        self._alive().change_members(change, partial(_settle, future))
        self._wake()
        await future

    def status(self) -> RaftStatus:
        """The present state of this member, between `start` and `stop`.

        Raises:
            NotLeaderError: not started.
        """
        if self._machine is None:
            raise NotLeaderError(None)
        return self._machine.status()

    # -- driving the machine

    def _beside(self, job: Callable[[], object]) -> "Future[object]":
        future = self._worker.submit(job)
        future.add_done_callback(self._job_done)
        return future

    def _job_done(self, _: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: the process ends
            self._loop.call_soon_threadsafe(self._wake)

    def _alive(self) -> RaftMachine:
        if self._machine is None or self._fatal is not None:
            raise NotLeaderError(None)
        return self._machine

    def _wake(self) -> None:
        if not self._turn_due and self._fatal is None:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        machine = self._machine
        if machine is None or self._fatal is not None:
            return
        try:
            machine.tick()
        except Exception as error:  # noqa: BLE001 - whatever it is, the machine's state cannot be trusted after it
            self._die(error)
            return
        self._follow_members(machine)
        self._report_role(machine)
        self._settle_waiters()
        self._arm(machine)

    def _follow_members(self, machine: RaftMachine) -> None:
        """Connect the transport to the members that the machine talks to."""
        if machine.peers is not self._connected_to and self._transport is not None:
            self._connected_to = machine.peers
            self._transport.set_members(_addresses(self._settings, machine))

    def _arm(self, machine: RaftMachine) -> None:
        delay = machine.next_deadline() - self._clock()
        if delay <= 0:
            self._wake()
            return
        when = self._loop.time() + delay + ROUND_UP
        if self._timer is not None:
            if self._timer.when() <= when < self._timer.when() + EARLY_SECONDS:
                return  # fires early, and is armed again then
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._wake()

    def _receive(self, peer: str, message: messages.AnyMessage) -> None:
        machine = self._machine
        if machine is None or self._fatal is not None:
            return
        try:
            tick = machine.receive(peer, message)
        except WireError:
            raise
        except Exception as error:  # noqa: BLE001 - as in _turn
            self._die(error)
            return
        if tick:
            self._wake()
        elif machine.role is not Role.LEADER:  # whose next heartbeat is due when it was
            self._arm(machine)

    def _report_role(self, machine: RaftMachine) -> None:
        picture = (machine.role, machine.term, machine.leader, machine.is_serving)
        if picture == self._reported:
            return
        self._reported = picture
        log.info("raft role", member=self._settings.self_id, **_picture(machine))
        if self._on_role_change is not None:
            self._on_role_change(machine.status())

    async def _until(self, condition: Callable[[], bool]) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append((condition, future))
        self._wake()
        await future

    def _settle_waiters(self, *, leaving: bool = False) -> None:
        waiters, self._waiters = self._waiters, []
        for condition, future in waiters:
            if future.done():
                continue
            if leaving or condition():
                future.set_result(None)
            else:
                self._waiters.append((condition, future))

    def _die(self, error: Exception) -> None:
        fatal = error if isinstance(error, FatalRaftError) else FatalRaftError(f"{type(error).__name__}: {error}")
        if fatal is not error:
            fatal.__cause__ = error
        self._fatal = fatal
        log.critical("raft member cannot continue", member=self._settings.self_id, reason=str(fatal), exc_info=error)
        if self._timer is not None:
            self._timer.cancel()
        if self._machine is not None:
            self._machine.abandon()
            with contextlib.suppress(Exception):  # it is broken; the others find out without it, later
                self._machine.goodbye()
        self._settle_waiters(leaving=True)
        if self._transport is not None:
            self._transport.leave()
        if self._on_fatal is not None:
            self._on_fatal(fatal)


def _settle(future: "asyncio.Future[object]", value: object, error: RaftError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


def _addresses(settings: RaftSettings, machine: RaftMachine) -> dict[str, list[tuple[str, int]]]:
    """The addresses of each member: the log's, then the configuration's if it differs."""
    known: dict[str, list[tuple[str, int]]] = {}
    for node in machine.peers:
        places = (machine.address_of(node.id), settings.peers.get(node.id))
        known[node.id] = list(dict.fromkeys(place for place in places if place is not None))
    return known


def _check_addresses(settings: RaftSettings, members: Configuration) -> None:
    others = members.ids - {settings.self_id}
    unknown = sorted(others - members.addresses().keys() - settings.peers.keys())
    if unknown:
        raise ForeignStoreError(
            settings.store_path,
            f"this store was made for the members {', '.join(sorted(members.ids))}, and the configuration does not say "
            f"where {', '.join(unknown)} is",
        )
    if members.ids != settings.peers.keys():
        log.warning(
            "the configuration names other members than the quorum has: the members of the quorum are used",
            configured=sorted(settings.peers),
            members=sorted(members.ids),
        )


def _picture(machine: RaftMachine) -> dict[str, object]:
    return {
        "role": machine.role.value,
        "serving": machine.is_serving,
        "term": machine.term,
        "leader": machine.leader.id if machine.leader is not None else None,
        "last_index": machine.last_index,
        "commit_index": machine.commit_index,
        "applied": machine.last_applied,
        "snapshot_index": machine.snapshot_index,
    }
