"""Beside a Java broker: looks at it and at its group again and again, and keeps it fenced or not as it is wanted.

`app` builds it and asks it for the probes and the metrics, `admin` for operators. It decides nothing about roles: those
are between the broker and the controllers. What it sees is judged in `domain.observing`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from rocketmq_sidecar.domain.observer_identity import strangers
from rocketmq_sidecar.domain.observer_looks import BrokerLook, GroupLook
from rocketmq_sidecar.domain.observing import Pace, Pulse, Role, Standing, confirm_offset, judge
from rocketmq_sidecar.observer.broker import BrokerError, BrokerGoneError, BrokerRefusesError
from rocketmq_sidecar.observer.controllers import ControllersSilentError
from rocketmq_sidecar.observer.fence import FenceKeeper
from rocketmq_sidecar.observer.files import ReplicaFiles
from rocketmq_sidecar.observer.hand_over import Brokers, Controllers
from rocketmq_sidecar.settings import SidecarSettings

log = structlog.get_logger(__name__)

HANG_PATIENCE = 10.0
"""Seconds without an answer after which the broker counts as hung; whoever ends it for that waits longer still."""
SILENCE = 5.0
"""Seconds without an answer for which a broker counts as what it was."""


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
        now_ms: Callable[[], int],
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
        self.address = broker_address(settings)
        self._fence = FenceKeeper(brokers, self.address, files)
        self._answered = float("-inf")
        self._pulse = Pulse(HANG_PATIENCE)
        self._pace = Pace()
        self._wake = asyncio.Event()
        self._silence = self.standing.text
        self._unheard: str | None = "the controllers have not been asked yet"
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
        """Look no more of oneself; `look` still does."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def look_soon(self) -> None:
        """Something has changed."""
        self._wake.set()

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

    async def look_and_keep_fence(self) -> None:
        """Make the broker as the fence says, now.

        Raises:
            BrokerError: it was not told, or perhaps not. That the broker is away is none: it is told when it is back.
        """
        await self._look_at_broker()
        if self.broker is not None:
            self.broker = await self._fence.keep(self.broker, look_again=True)
        self.look_soon()

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
            self.broker = self.last = await self._brokers.look(self.address)
        except BrokerError as error:
            if isinstance(error, BrokerGoneError):
                self._pulse.on_gone()
            elif isinstance(error, BrokerRefusesError):
                self._pulse.on_answer(self._loop.time())
            elif self.broker is not None and self._loop.time() - self._answered <= SILENCE:
                return  # perhaps it collects garbage
            self.broker, self._silence = None, str(error)
        else:
            self._answered = self._loop.time()
            self._pulse.on_answer(self._answered)

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
            trouble = strangers(broker.cluster_name, broker.broker_name, wanted=wanted, address=self.address)
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
            await self._brokers.tell_master(self.address, ha_address=ha_address, master_address=master_address)
            log.info("slave told where its master is", ha_address=ha_address, before=broker.master_ha_address)

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


def wall_clock() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def broker_address(settings: SidecarSettings) -> str:
    """Where the broker listens: this pod's loopback, unless it is bound to one address."""
    host = settings.bind_address
    return f"{'127.0.0.1' if host in {'', '0.0.0.0', '::'} else host}:{settings.listen_port}"  # noqa: S104 - compared
