"""How the observing sidecar judges what it sees of a Java broker: its role, whether it serves, whether it hangs. Pure.

Ready means that the replica serves: a master that the controllers name, or a slave that replicates, be it in the
SyncStateSet or still catching up (whoever rolls a group waits for the set itself). Controllers that do not answer do
not make a serving broker unready: official brokers go on without them.
"""

from enum import StrEnum

import msgspec

from rocketmq_sidecar.domain.observer_looks import BrokerLook, GroupLook

REPLICATES_MS = 20_000
"""A slave that has heard nothing from its master for so long does not replicate: a master says something every 5 s, and
Java itself ends the connection then (haHousekeepingInterval)."""


class Role(StrEnum):
    """As native replicas name it."""

    NONE = "none"
    """The broker does not answer."""
    MASTER = "master"
    SLAVE = "slave"
    FENCED = "fenced"
    """Neither: not registered, between two roles, or nobody says which."""


class Standing(msgspec.Struct, frozen=True):
    """The verdict of one look."""

    role: Role
    text: str
    """What it is or why it is of no use, in one line."""
    ready: bool

    @property
    def unready(self) -> str | None:
        """Why it does not serve."""
        return None if self.ready else self.text


def judge(
    *,
    broker_id: int | None,
    broker: BrokerLook | None,
    silence: str,
    group: GroupLook | None,
    unheard: str | None,
    trouble: str | None,
    now_ms: int,
) -> Standing:
    """Role and readiness.

    Args:
        broker_id: from the identity file; None while there is none.
        broker: its answers; None: none came, and `silence` says why.
        group: the controllers' last word; None: never heard, or they do not know the group.
        unheard: why that word is old or missing; None if it is of this look.
        trouble: what is wrong with the identity; nothing outweighs it.
        now_ms: milliseconds since 1970.
    """
    if broker is None:
        return Standing(Role.NONE, trouble or silence, ready=False)
    standing = _standing(broker_id, broker, group, unheard, now_ms)
    if trouble is not None:
        return Standing(standing.role, trouble, ready=False)
    return standing


def _standing(
    broker_id: int | None, broker: BrokerLook, group: GroupLook | None, unheard: str | None, now_ms: int
) -> Standing:
    if broker_id is None:
        return _fenced("the broker has no brokerId yet: it has not reached the controllers")
    if group is None:
        return _fenced(unheard or "the controllers do not know the group yet")
    if broker.serves_as_master and group.master_id == broker_id:
        return Standing(Role.MASTER, f"master of epoch {group.master_epoch}", ready=True)
    why = _between_roles(broker_id, broker, group, unheard)
    return _slave(broker, now_ms, in_sync=broker_id in group.in_sync) if why is None else _fenced(why)


def _between_roles(broker_id: int, broker: BrokerLook, group: GroupLook, unheard: str | None) -> str | None:
    """Why a broker that is not the master is no slave either."""
    if broker_id not in group.addresses:
        return f"the controllers do not know brokerId {broker_id} of this group"
    if unheard is None and broker_id not in group.alive:
        return "the controllers do not hear the broker: not registered since it started, or cut off from them"
    if group.master_id is None:
        return "the group has no master"
    if broker.outward_id == 0 or group.master_id == broker_id:
        return unheard or f"becoming {'master' if group.master_id == broker_id else f'slave of {group.master_id}'}"
    return None


def _slave(broker: BrokerLook, now_ms: int, *, in_sync: bool) -> Standing:
    if in_sync:
        return Standing(Role.SLAVE, "slave in the SyncStateSet", ready=True)
    if now_ms - broker.last_read_ms <= REPLICATES_MS:
        return Standing(Role.SLAVE, "slave, not in the SyncStateSet yet: catching up", ready=True)
    source = broker.master_ha_address or "no address yet"
    return Standing(Role.SLAVE, f"slave that does not replicate: nothing comes from its master ({source})", ready=False)


def _fenced(text: str) -> Standing:
    return Standing(Role.FENCED, text, ready=False)


def confirm_offset(role: Role, broker: BrokerLook, *, all_ack: bool, stored: int) -> int:
    """What consumers may see, in bytes: as 5.3.3's `getConfirmOffset`.

    Args:
        all_ack: the broker's allAckInSyncStateSet; without it a master shows all it has.
        stored: the one in the checkpoint file, which is all a slave has.
    """
    if role is not Role.MASTER:
        return min(stored, broker.max_offset)
    return (
        min((broker.max_offset, *(slave.ack for slave in broker.slaves if slave.in_sync)))
        if all_ack
        else broker.max_offset
    )


class Pulse:
    """Whether the broker process hangs: it takes connections and answers nothing, after it had answered.

    A process that is gone, or not listening because it still recovers its store, does not hang. Read from the probes'
    thread.
    """

    def __init__(self, patience: float) -> None:
        """`patience`: seconds without an answer that count as hanging."""
        self._patience = patience
        self._answered: float | None = None

    def on_answer(self, now: float) -> None:
        self._answered = now

    def on_gone(self) -> None:
        """Nothing listens: the next process has a life of its own."""
        self._answered = None

    def hung(self, now: float) -> str | None:
        """None, or for how long it has not answered."""
        answered = self._answered
        if answered is None or now - answered <= self._patience:
            return None
        return f"the broker has not answered for {now - answered:.0f} s"


class Pace:
    """How long to wait before the next look: short while things change or are not as they should be."""

    BUSY = 1.0
    IDLE = 3.0
    CALM = 10.0
    """Seconds without a change after which it is idle."""

    def __init__(self) -> None:
        self._changed_at = float("-inf")

    def pause(self, now: float, *, changed: bool) -> float:
        """Seconds until the next look."""
        if changed:
            self._changed_at = now
        return self.BUSY if now - self._changed_at < self.CALM else self.IDLE
