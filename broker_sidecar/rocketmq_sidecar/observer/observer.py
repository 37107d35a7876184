"""Polls a Java broker and its group, and keeps the broker fenced or not, as wanted.

`app` builds it and reads it for the probes and the metrics, `admin` for operators. It decides nothing about roles: the
broker and the controllers do. `domain.observing` judges what it sees.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from rocketmq_formats.addresses import format_address
from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_formats.store.given_up import GivenUp
from rocketmq_runtime import background
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_runtime.sockets import EVERYWHERE
from rocketmq_sidecar.domain.observing.identity import wrong_group
from rocketmq_sidecar.domain.observing.proof import CatchUpCheck, acknowledged
from rocketmq_sidecar.domain.observing.status import BrokerStatus, GroupStatus
from rocketmq_sidecar.domain.observing.verdict import HangDetector, PollInterval, Role, Standing, confirm_offset, judge
from rocketmq_sidecar.evidence.given_up_file import remark_of
from rocketmq_sidecar.observer.broker import BrokerError, BrokerGoneError, BrokerRefusesError
from rocketmq_sidecar.observer.controllers import ControllersSilentError, OtherControllersError
from rocketmq_sidecar.observer.fence import FenceKeeper
from rocketmq_sidecar.observer.files import ReplicaFiles
from rocketmq_sidecar.observer.hand_over import Controllers
from rocketmq_sidecar.observer.master_link import MasterLink, SlaveBrokers
from rocketmq_sidecar.observer.store_proof import StoreProof
from rocketmq_sidecar.settings import SidecarSettings

log = structlog.get_logger(__name__)

HANG_PATIENCE = 10.0
"""Seconds without an answer after which the broker counts as hung; the liveness probe waits longer still."""
SILENCE = 5.0
"""Seconds without an answer for which the last status of a broker still counts."""


class Observer:
    def __init__(
        self,
        settings: SidecarSettings,
        *,
        brokers: SlaveBrokers,
        controllers: Controllers,
        files: ReplicaFiles,
        proof: StoreProof,
        now_ms: Callable[[], int],
    ) -> None:
        """Nothing is opened or requested yet. Needs a running event loop."""
        self.settings = settings
        self.files = files
        self.proof = proof
        self.broker: BrokerStatus | None = None
        self.last: BrokerStatus | None = None
        """The broker's last status; `broker` is unset while it does not answer."""
        self.group: GroupStatus | None = None
        self.standing = Standing(Role.UNKNOWN, "the broker has not been asked yet", ready=False)
        self._brokers, self._controllers = brokers, controllers
        self._loop = asyncio.get_running_loop()
        self._now_ms = now_ms
        self.address = broker_address(settings)
        self._fence = FenceKeeper(brokers, self.address, files)
        self._master_link = MasterLink(brokers, self.address)
        self._answered = float("-inf")
        self._hang_detector = HangDetector(HANG_PATIENCE)
        self._catch_up = CatchUpCheck()
        self._interval = PollInterval()
        self._wake = asyncio.Event()
        self._broker_error = self.standing.text
        self._controllers_error: str | None = "the controllers have not been asked yet"
        self._foreign: str | None = None
        """Which controllers are of another group, with both."""
        self._task: asyncio.Task[None] | None = None

    # Life

    def start(self, on_bug: Callable[[BaseException], None]) -> None:
        """Start polling; `on_bug` gets the exception if the task ends by itself."""

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                on_bug(error)

        self._task = background.awaited(self._run(), "questions to the broker")
        self._task.add_done_callback(ended)

    async def stop(self) -> None:
        """Stop polling periodically; `poll` still works."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def poll_soon(self) -> None:
        """Something has changed: do not wait for the next poll."""
        self._wake.set()

    def hung(self) -> str | None:
        """For how long the broker has been hanging, so that a restart of it helps; None if it does not hang."""
        return self._hang_detector.hung(self._loop.time())

    def unready(self) -> str | None:
        """None, or why this replica does not serve."""
        return self.standing.unready

    def remark(self) -> str | None:
        """What an operator should know although this replica serves."""
        return "; ".join(filter(None, (remark_of(lambda: self.given_up), self.standing.remark))) or None

    @property
    def given_up(self) -> tuple[GivenUp, ...]:
        """Acknowledged messages that the group continues without, until an operator deletes the note. Raises
        `GivenUpError`, `StorageError`."""
        epochs, end = EpochList(self.files.epochs), 0
        if self.last is not None:
            epochs, end = EpochList(self.last.epochs), self.last.max_offset
        noted = (one.left(epochs, end) for one in self.proof.given_up)
        return tuple(one for one in noted if one is not None)

    async def _run(self) -> None:
        while True:
            before = self.standing, self.group
            await self.poll()
            changed = (self.standing, self.group) != before or not self.standing.ready
            pause = self._interval.pause(self._loop.time(), changed=changed)
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    # Polling

    async def poll(self) -> None:
        """Poll everything once; ends within seconds even if a peer does not answer."""
        self.files.reload()
        await self.proof.begin()
        await asyncio.gather(self._poll_broker(), self._poll_group())
        # Before the verdict: a replica that is reported ready has its fence applied.
        await self._with_broker(self._keep_fence)
        await self._prove()
        self._judge()
        await self._with_broker(self._keep_master_link)

    async def poll_and_keep_fence(self) -> None:
        """Apply the fence to the broker now.

        Raises:
            BrokerError: it failed, or the result is not known. No error if the broker is away: the fence is applied
            when
                it is back.
        """
        await self._poll_broker()
        if self.broker is not None:
            self.broker = await self._fence.keep(self.broker, reread=True)
        self.poll_soon()

    async def _with_broker(self, what: Callable[[BrokerStatus], Awaitable[None]]) -> None:
        if self.broker is not None:
            try:
                await what(self.broker)
            except BrokerError as error:
                log.warning("cannot configure the broker", reason=str(error))

    async def _keep_fence(self, broker: BrokerStatus) -> None:
        self.broker = await self._fence.keep(broker)

    async def _poll_broker(self) -> None:
        try:
            self.broker = self.last = await self._brokers.status(self.address)
        except BrokerError as error:
            if isinstance(error, BrokerGoneError):
                self._hang_detector.on_disconnect()
            elif isinstance(error, BrokerRefusesError):
                self._hang_detector.on_answer(self._loop.time())
            elif self.broker is not None and self._loop.time() - self._answered <= SILENCE:
                return  # it may be collecting garbage
            self.broker, self._broker_error = None, str(error)
        else:
            self._answered = self._loop.time()
            self._hang_detector.on_answer(self._answered)

    async def _poll_group(self) -> None:
        try:
            group = await self._controllers.group()
        except ControllersSilentError as error:
            self._controllers_error = str(error)
            self._foreign = str(error) if isinstance(error, OtherControllersError) else None
        else:
            self.group, self._controllers_error, self._foreign = group, None, None
            self._keep_controllers(group)

    def _keep_controllers(self, group: GroupStatus | None) -> None:
        """Where the broker has registered, other controllers are refused from now on."""
        name = self._controllers.name
        if group is None or self.broker_id not in group.addresses or name in {None, self.files.controllers}:
            return
        try:
            self.files.save_controllers(name)
        except StorageError as error:
            log.warning("cannot keep the group of controllers", reason=str(error))
        else:
            log.info("group of controllers kept", group=name)

    async def _prove(self) -> None:
        """Whether the log has all that was acknowledged."""
        broker, proof = self.broker, self.proof
        if broker is None or not proof.begun:
            return
        acked = acknowledged(broker, self.group, stored=self.files.confirm_offset)
        epochs = EpochList(broker.epochs)
        await proof.saw(end=broker.max_offset, acked=acked, epochs=epochs)
        if proof.unproven is not None and await self._has_everything(broker):
            group = self.group
            epoch = max(-1 if group is None else group.master_epoch, epochs.last_epoch)
            # A Java slave may learn of an epoch of the master that it follows too late: its table proves no loss.
            leads = group is not None and group.master_id == self.broker_id
            await proof.mark_proven(broker.max_offset, epochs if leads else EpochList(), epoch)

    async def _has_everything(self, broker: BrokerStatus) -> bool:
        group, broker_id = self.group, self.broker_id
        if group is None or group.master_id is None or self._controllers_error is not None or broker_id is None:
            return False
        if group.master_id == broker_id:
            return broker.serves_as_master
        master_address = group.addresses.get(group.master_id)
        if broker.outward_id != broker_id or master_address is None:
            return False
        try:
            master = await self._brokers.status(master_address)
        except BrokerError:
            return False
        return self._catch_up.reached(broker, master, group)

    def _judge(self) -> None:
        settings, broker = self.settings, self.broker
        trouble = self.files.trouble
        if broker is not None and trouble is None:
            wanted = (settings.broker_cluster_name, settings.name)
            trouble = wrong_group(broker.cluster_name, broker.broker_name, wanted=wanted, address=self.address)
        trouble = trouble or self._foreign
        before = self.standing
        self.standing = judge(
            broker_id=self.broker_id,
            broker=broker,
            broker_error=self._broker_error,
            group=self.group,
            controllers_error=self._controllers_error,
            trouble=trouble,
            unproven=self.proof.unproven,
            now_ms=self._now_ms(),
        )
        if self.standing != before:
            level = log.info if self.standing.ready else log.warning
            level(
                "replica",
                role=self.standing.role.value,
                standing=self.standing.text,
                ready=self.standing.ready,
                acting=self.standing.acting,
            )

    async def _keep_master_link(self, broker: BrokerStatus) -> None:
        group = self.group if self._controllers_error is None else None
        await self._master_link.keep(broker, self.broker_id, group, self._fence.configuration)

    # What is known

    @property
    def broker_id(self) -> int | None:
        identity = self.files.identity
        return None if identity is None else identity.broker_id

    @property
    def unproven_report(self) -> tuple[int, str | None] | None:
        """brokerId, and why its log may lack what was acknowledged; None while not known."""
        return None if self.broker_id is None or not self.proof.begun else (self.broker_id, self.proof.unproven)

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
        """Whether the controllers answered the last poll."""
        return self._controllers_error is None


def wall_clock() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def broker_address(settings: SidecarSettings) -> str:
    """Where the broker listens: this pod's loopback, unless it is bound to one address."""
    host = settings.bind_address
    own = "127.0.0.1" if host in EVERYWHERE else host
    return format_address(own, settings.listen_port)
