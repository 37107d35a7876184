"""The observing sidecar's verdict on a Java broker: its role, whether it serves, whether it hangs. Pure.

Ready means that the replica serves: a master that the controllers name, or a slave that replicates, whether in the
SyncStateSet or still catching up (a rolling update waits for the set itself). Controllers that do not answer do not
make a serving broker unready: official brokers continue without them.
"""

from enum import StrEnum

import msgspec

from rocketmq_sidecar.domain.acting import ACTING, with_acting
from rocketmq_sidecar.domain.observing.status import BrokerStatus, GroupStatus

REPLICATES_MS = 20_000
"""A slave that has received nothing from its master for this long does not replicate: a master sends something every 5
s, and Java itself ends the connection then (haHousekeepingInterval)."""


class Role(StrEnum):
    """The same names as for native replicas."""

    UNKNOWN = "unknown"
    """The broker does not answer."""
    MASTER = "master"
    SLAVE = "slave"
    NONE = "none"
    """Neither: not registered, between two roles, or not known."""


class Standing(msgspec.Struct, frozen=True):
    """The verdict of one poll."""

    role: Role
    text: str
    """Its role, or why it does not serve, in one line."""
    ready: bool
    acting: bool = False
    """It serves consumers in a master's place, also where it is not ready."""

    @property
    def unready(self) -> str | None:
        """Why it does not serve."""
        return None if self.ready else with_acting(self.text, acting=self.acting)

    @property
    def remark(self) -> str | None:
        """What an operator should know although it serves."""
        return ACTING if self.ready and self.acting else None


def judge(
    *,
    broker_id: int | None,
    broker: BrokerStatus | None,
    broker_error: str,
    group: GroupStatus | None,
    controllers_error: str | None,
    trouble: str | None,
    unproven: str | None,
    now_ms: int,
) -> Standing:
    """Role and readiness.

    Args:
        broker_id: from the identity file; None without a file.
        broker: its answers; None if it did not answer, and `broker_error` says why.
        group: the controllers' last answer; None: no answer yet, or they do not know the group.
        controllers_error: why that answer is old or missing; None if it is from this poll.
        trouble: what is wrong with the identity; it takes precedence over everything else.
        unproven: why the log may lack what was acknowledged; then the replica does not serve without a living master.
        now_ms: milliseconds since 1970.
    """
    if broker is None:
        return Standing(Role.UNKNOWN, trouble or broker_error, ready=False)
    standing = _standing(broker_id, broker, group, controllers_error, now_ms)
    if unproven is not None and group is not None and group.master_id not in group.alive:
        standing = _no_role(unproven)
    if trouble is not None:
        standing = Standing(standing.role, trouble, ready=False)
    return msgspec.structs.replace(standing, acting=broker.acts_as_master)


def _standing(
    broker_id: int | None, broker: BrokerStatus, group: GroupStatus | None, controllers_error: str | None, now_ms: int
) -> Standing:
    if broker_id is None:
        return _no_role("the broker has no brokerId yet: it has not reached the controllers")
    if group is None:
        return _no_role(controllers_error or "the controllers do not know the group yet")
    if broker.serves_as_master and group.master_id == broker_id:
        return Standing(Role.MASTER, f"master of epoch {group.master_epoch}", ready=True)
    why = _between_roles(broker_id, broker, group, controllers_error)
    return _slave(broker, now_ms, in_sync=broker_id in group.in_sync) if why is None else _no_role(why)


def _between_roles(
    broker_id: int, broker: BrokerStatus, group: GroupStatus, controllers_error: str | None
) -> str | None:
    """Why a broker that is not the master is not a slave either."""
    if broker_id not in group.addresses:
        return f"the controllers do not know brokerId {broker_id} of this group"
    if controllers_error is None and broker_id not in group.alive:
        return "the controllers receive no heartbeats: the broker has not registered since it started, or is cut off"
    if group.master_id is None:
        return "the group has no master"
    if broker.outward_id != broker_id or group.master_id == broker_id:
        return (
            controllers_error
            or f"becoming {'master' if group.master_id == broker_id else f'slave of {group.master_id}'}"
        )
    return None


def _slave(broker: BrokerStatus, now_ms: int, *, in_sync: bool) -> Standing:
    if in_sync:
        return Standing(Role.SLAVE, "slave in the SyncStateSet", ready=True)
    if now_ms - broker.last_read_ms <= REPLICATES_MS:
        return Standing(Role.SLAVE, "slave, not in the SyncStateSet yet: catching up", ready=True)
    source = broker.master_ha_address or "no address yet"
    return Standing(Role.SLAVE, f"slave that does not replicate: nothing from its master ({source})", ready=False)


def _no_role(text: str) -> Standing:
    return Standing(Role.NONE, text, ready=False)


def confirm_offset(role: Role, broker: BrokerStatus, *, all_ack: bool, stored: int) -> int:
    """What consumers may see, in bytes: as 5.3.3's `getConfirmOffset`.

    Args:
        all_ack: the broker's allAckInSyncStateSet; without it a master shows its whole log.
        stored: the confirm offset in the checkpoint file, the only one that a slave has.
    """
    if role is not Role.MASTER:
        return min(stored, broker.max_offset)
    return (
        min((broker.max_offset, *(slave.ack for slave in broker.slaves if slave.in_sync)))
        if all_ack
        else broker.max_offset
    )


class HangDetector:
    """Whether the broker process hangs: it accepts connections but no longer answers.

    A process that has ended, or does not listen because it still recovers its store, does not hang. Read from the
    probes' thread.
    """

    def __init__(self, patience: float) -> None:
        """`patience`: seconds without an answer that count as hanging."""
        self._patience = patience
        self._answered: float | None = None

    def on_answer(self, now: float) -> None:
        self._answered = now

    def on_disconnect(self) -> None:
        """Nothing listens: the next process counts separately."""
        self._answered = None

    def hung(self, now: float) -> str | None:
        """None, or for how long it has not answered."""
        answered = self._answered
        if answered is None or now - answered <= self._patience:
            return None
        return f"the broker has not answered for {now - answered:.0f} s"


class PollInterval:
    """How long to wait before the next poll: short while things change or the replica is not ready."""

    BUSY = 1.0
    IDLE = 3.0
    CALM = 10.0
    """Seconds without a change after which it is idle."""

    def __init__(self) -> None:
        self._changed_at = float("-inf")

    def pause(self, now: float, *, changed: bool) -> float:
        """Seconds until the next poll."""
        if changed:
            self._changed_at = now
        return self.BUSY if now - self._changed_at < self.CALM else self.IDLE
