"""Beside a Java broker: looks at it and at its group again and again, and keeps it fenced or not as it is wanted.

`app` builds it and asks it for the probes, the metrics and, as `ReplicaAdmin`, for operators. It decides nothing about
roles: those are between the broker and the controllers. What it sees is judged in `domain.observing`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from rocketmq_api.replica_view import NewMaster, ReplicaView
from rocketmq_runtime.filesystem import StorageError
from rocketmq_sidecar.domain import observer_fence
from rocketmq_sidecar.domain.fence import Fence
from rocketmq_sidecar.domain.observer_identity import strangers
from rocketmq_sidecar.domain.observer_looks import BrokerLook, GroupLook
from rocketmq_sidecar.domain.observing import Pace, Pulse, Role, Standing, confirm_offset, judge
from rocketmq_sidecar.observer.broker import BrokerError, BrokerGoneError, BrokerRefusesError
from rocketmq_sidecar.observer.controllers import ControllersSilentError
from rocketmq_sidecar.observer.fence import FenceKeeper
from rocketmq_sidecar.observer.files import ReplicaFiles
from rocketmq_sidecar.observer.hand_over import Brokers, Controllers, HandOver
from rocketmq_sidecar.observer.view import replica_view
from rocketmq_sidecar.replica_admin import NotDoneError, NotNowError, UnderWayError
from rocketmq_sidecar.settings import SidecarSettings

log = structlog.get_logger(__name__)

HANG_PATIENCE = 10.0
"""Seconds without an answer after which the broker counts as hung; whoever ends it for that waits longer still."""
FAREWELL = 4.0
"""Seconds that a hand-over may take at the sidecar's end."""


class SlaveBrokers(Brokers, Protocol):
    """`observer.broker.BrokerCalls`."""

    async def ha_address(self, address: str, seconds: float = ...) -> str | None: ...
    async def tell_master(self, address: str, *, ha_address: str, master_address: str) -> None: ...


class Observer:
    """One replica, seen from beside it."""

    def __init__(
        self,
        settings: SidecarSettings,
        *,
        brokers: SlaveBrokers,
        controllers: Controllers,
        files: ReplicaFiles,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Nothing is opened or asked yet. Needs a running event loop."""
        self.settings = settings
        self.files = files
        self.broker: BrokerLook | None = None
        self.last: BrokerLook | None = None
        """What the broker said last; `broker` is None while it says nothing."""
        self.group: GroupLook | None = None
        self.standing = Standing(Role.NONE, "the broker has not been asked yet", ready=False)
        self._brokers, self._controllers = brokers, controllers
        self._loop = asyncio.get_running_loop()
        self._now_ms = now_ms
        self._address = broker_address(settings)
        self._fence = FenceKeeper(brokers, self._address, files)
        self._pulse = Pulse(HANG_PATIENCE)
        self._pace = Pace()
        self._wake = asyncio.Event()
        self._silence = self.standing.text
        self._unheard: str | None = "the controllers have not been asked yet"
        self._fencing = asyncio.Lock()
        self._handing_over: asyncio.Task[NewMaster] | None = None
        self._task: asyncio.Task[None] | None = None

    # Life

    def start(self, on_bug: Callable[[BaseException], None]) -> None:
        """Begin to look; `on_bug` hears why it ended, should it ever by itself."""

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                on_bug(error)

        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(ended)

    async def stop(self) -> None:
        """Hand over if this is the master's, then look no more."""
        task, self._task = self._task, None
        if task is None:
            return
        ended = task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not ended:
            try:
                await self._farewell()
            except (NotNowError, NotDoneError) as error:
                log.warning("mastership not handed over: the controllers elect when the broker goes", reason=str(error))

    async def _farewell(self) -> None:
        if self._handing_over is None:
            await self.look()  # perhaps it was elected just now
        if self._handing_over is not None:
            await self._handing_over
        elif self.standing.role is Role.MASTER and self.files.fence is None:
            await self.hand_over(None, FAREWELL)

    def hung(self) -> str | None:
        """Since when the broker hangs, so that a restart of it would help."""
        return self._pulse.hung(self._loop.time())

    def unready(self) -> str | None:
        """None, or why this replica does not serve."""
        return self.standing.unready

    async def _run(self) -> None:
        while True:
            before = self.standing, self.group
            await self.look()
            changed = (self.standing, self.group) != before or not self.standing.ready
            pause = self._pace.pause(self._loop.time(), changed=changed)
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    # Looking

    async def look(self) -> None:
        """One look at everything; ends within seconds, whoever does not answer."""
        self.files.look()
        await asyncio.gather(self._look_at_broker(), self._look_at_group())
        # Judged behind it: whoever is ready is fenced if it is to be.
        await self._tell(self._keep_fence)
        self._judge()
        await self._tell(self._point_to_master)

    async def _tell(self, what: Callable[[BrokerLook], Awaitable[None]]) -> None:
        if self.broker is not None:
            try:
                await what(self.broker)
            except BrokerError as error:
                log.warning("the broker was not told", reason=str(error))

    async def _keep_fence(self, broker: BrokerLook) -> None:
        self.broker = await self._fence.keep(broker)

    async def _look_at_broker(self) -> None:
        try:
            self.broker = self.last = await self._brokers.look(self._address)
        except BrokerError as error:
            self.broker, self._silence = None, str(error)
            if isinstance(error, BrokerGoneError):
                self._pulse.on_gone()
            elif isinstance(error, BrokerRefusesError):
                self._pulse.on_answer(self._loop.time())
        else:
            self._pulse.on_answer(self._loop.time())

    async def _look_at_group(self) -> None:
        try:
            group = await self._controllers.group()
        except ControllersSilentError as error:
            self._unheard = str(error)
        else:
            self.group, self._unheard = group, None

    def _judge(self) -> None:
        settings, broker = self.settings, self.broker
        trouble = self.files.trouble
        if broker is not None and trouble is None:
            wanted = (settings.broker_cluster_name, settings.name)
            trouble = strangers(broker.cluster_name, broker.broker_name, wanted=wanted, address=self._address)
        before = self.standing
        self.standing = judge(
            broker_id=self.broker_id,
            broker=broker,
            silence=self._silence,
            group=self.group,
            unheard=self._unheard,
            trouble=trouble,
            now_ms=self._now_ms(),
        )
        if self.standing != before:
            level = log.info if self.standing.ready else log.warning
            level("replica", role=self.standing.role.value, standing=self.standing.text, ready=self.standing.ready)

    async def _point_to_master(self, broker: BrokerLook) -> None:
        """A slave learns its master's HA address from a name server, late, and after an election that the old master
        survives perhaps the old one's, to which it then holds for ever. So it is told here."""
        group, broker_id = self.group, self.broker_id
        if group is None or group.master_id is None or self._unheard is not None or broker.outward_id != broker_id:
            return
        if broker_id in group.in_sync or group.master_id == broker_id:
            return
        master_address = group.addresses.get(group.master_id)
        if master_address is None:
            return
        try:
            ha_address = await self._brokers.ha_address(master_address)
        except BrokerError:
            return  # the master is looked after by its own sidecar
        if ha_address is not None and ha_address != broker.master_ha_address:
            await self._brokers.tell_master(self._address, ha_address=ha_address, master_address=master_address)
            log.info("slave told where its master is", ha_address=ha_address, before=broker.master_ha_address)

    # ReplicaAdmin

    def get_replica(self) -> ReplicaView:
        """As last seen."""
        return replica_view(
            self.settings,
            broker_id=self.broker_id,
            standing=self.standing,
            broker=self.last,
            group=self.group,
            fence=self.files.fence,
            confirm_offset=self.confirm_offset,
            epochs=self.files.epochs,
        )

    async def set_fenced(self, *, fenced: bool, reason: str) -> ReplicaView:
        """See `ReplicaAdmin`."""
        # Shielded: a caller that goes away must not leave file and broker at odds.
        await asyncio.shield(self._loop.create_task(self._set_fenced(fenced=fenced, reason=reason)))
        return self.get_replica()

    async def _set_fenced(self, *, fenced: bool, reason: str) -> None:
        files = self.files
        async with self._fencing:
            if files.damaged is not None:
                raise NotNowError(files.damaged)
            since = self._now_ms() if files.fence is None else files.fence.since_millis
            wanted = Fence(reason, since) if fenced else None
            if wanted != files.fence:
                try:
                    await files.save_fence(wanted)
                except StorageError as error:
                    raise NotNowError(str(error)) from error
                log.info("fence kept" if fenced else "fence ended", reason=reason)
            try:
                await self._look_at_broker()
                if self.broker is not None:
                    self.broker = await self._fence.keep(self.broker, look_again=True)
            except BrokerError as error:
                raise NotDoneError(f"kept, and tried again until it is done; for now {error}") from error
            self._wake.set()

    async def hand_over(self, broker_id: int | None, seconds: float) -> NewMaster:
        """See `ReplicaAdmin`."""
        if self._handing_over is None and self.standing.role is not Role.MASTER:
            await self.look()  # perhaps it was elected just now
        own = self.broker_id
        if self._handing_over is not None:
            raise UnderWayError("a hand-over is under way")
        if self.standing.role is not Role.MASTER or own is None:
            raise NotNowError(f"this replica is no master: {self.standing.text}")
        if self.files.fence is not None:
            raise NotNowError(f"fenced ({self.files.fence.reason}): let it take sends first")
        work = HandOver(
            self._brokers,
            self._controllers,
            address=self._address,
            broker_id=own,
            seconds=seconds,
            now_ms=self._now_ms(),
        )
        self._handing_over = self._loop.create_task(self._hand_over(work, broker_id))
        # Shielded: it is not undone because whoever asked has gone.
        return await asyncio.shield(self._handing_over)

    async def _hand_over(self, work: HandOver, broker_id: int | None) -> NewMaster:
        try:
            try:
                return await work.run(broker_id)
            finally:
                if work.refusing:
                    await self._let_go()
        finally:
            self._handing_over = None
            self._wake.set()

    async def _let_go(self) -> None:
        """Sends are taken again, if this is the master; the refusal ends by itself, so one try is enough."""
        try:
            await self._brokers.configure(self._address, observer_fence.let_go(fenced=self.files.fence is not None))
        except BrokerError as error:
            log.warning("the broker was not told to take sends again: it does so by itself", reason=str(error))

    # What is known

    @property
    def broker_id(self) -> int | None:
        identity = self.files.identity
        return None if identity is None else identity.broker_id

    @property
    def confirm_offset(self) -> int:
        if self.last is None:
            return self.files.confirm_offset
        return confirm_offset(
            self.standing.role,
            self.last,
            all_ack=self._fence.configuration.get("allAckInSyncStateSet") == "true",
            stored=self.files.confirm_offset,
        )

    @property
    def controller_found(self) -> bool:
        """Whether the controllers answered the last look."""
        return self._unheard is None


def broker_address(settings: SidecarSettings) -> str:
    """Where the broker listens: this pod's loopback, unless it is bound to one address."""
    host = settings.bind_address
    return f"{'127.0.0.1' if host in {'', '0.0.0.0', '::'} else host}:{settings.listen_port}"  # noqa: S104 - compared
