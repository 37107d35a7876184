"""What must hold at every step of a simulated broker group, by name.

`GroupChecker` looks at processes and disks from outside. The log that was ever confirmed or acknowledged is kept as
`truth`; a replica's log is compared with it wherever either may have changed.
"""

import struct
from typing import Final

import msgspec

from rocketmq_broker.domain.role import Role
from rocketmq_controller.domain.model import BrokerGroup
from rocketmq_formats.store.message import Blank, Record, RecordError, read_record
from rocketmq_sidecar.domain.control.role import ReplicationState
from tests.sim.checks import Violation
from tests.sim.groups.replica import SimReplica

_SIZE: Final = struct.Struct(">i")


class Promise(msgspec.Struct, frozen=True):
    """What the seed's configuration promises."""

    copies: int
    """Of an acknowledged message, on members of the committed SyncStateSet; 0: no promise except the order of the
    end."""
    exclusive_acceptance: bool
    """At most one replica accepts sends at any instant (relaxed durability; with strict durability an old master may
    still accept, but what it cannot get acknowledged by the new one it never acknowledges)."""
    kept_to_the_end: bool = False
    """What was acknowledged is in all logs in the end, however many copies there were: nothing was ever killed."""


class GroupChecker:
    """For one run."""

    def __init__(self, replicas: list[SimReplica], promise: Promise) -> None:
        self.replicas, self.promise = replicas, promise
        self.group: BrokerGroup | None = None
        self.truth = bytearray()
        self.acked: dict[bytes, tuple[int, int]] = {}
        """Body -> the log's bytes that hold the message."""
        self.acked_end = 0
        self.granted: dict[int, str] = {}
        self.ids: dict[str, int] = {}
        self.matches = dict.fromkeys((replica.name for replica in replicas), 0)
        self.emptied: set[str] = set()
        """Replicas whose disk was emptied, until the log is there again; not counted as lost copies until then."""
        self.cut: set[str] = set()
        """Who lost power without SYNC_FLUSH, until its log has everything again and it knows that; not counted as lost
        copies. What it has when the power fails does not matter: acknowledgements of more may be under way."""
        self.ever_lost = False
        """Whether a member may have had to leave because it lacked what it had acknowledged."""
        self.given_up: int | None = None
        """Where the first messages began that were acknowledged and that no replica has."""
        self.buried = 0
        """Replicas that died for good."""
        self.fenced: set[str] = set()
        """Whose sidecar has said that sends are refused."""
        self._confirmed: dict[str, int] = {}

    # Events

    def on_group(self, group: BrokerGroup) -> None:
        """The controllers committed a change."""
        before = frozenset() if self.group is None else self.group.sync_state_set
        changed = before != group.sync_state_set
        if self.promise.copies > 1 and len(before) > 1 and len(group.sync_state_set) < 2 and not self.ever_lost:
            raise Violation(f"KeepsElectable: the SyncStateSet {sorted(before)} has become {group.sync_state_set}")
        self.group = group
        if changed:
            self.acked_survives()

    def on_ack(self, replica: SimReplica, body: bytes, start: int, end: int) -> None:
        """A producer was answered PUT_OK."""
        self.acked[body] = start, end
        if not self.promise.copies:
            return
        if self._learn(replica, end) < end:
            raise Violation(f"AckedSurvives: {replica.name} acknowledges {end}, where no record ends")
        self.prefix_aligned(replica, end)
        self.acked_end = max(self.acked_end, end)
        self.acked_survives()

    def check_replica(self, replica: SimReplica) -> None:
        """Everything that can be seen from outside, after a turn of one of the replica's processes."""
        low, replica.disk.lowest_change = replica.disk.lowest_change, None
        if low is not None and low < self.matches[replica.name]:
            self.matches[replica.name] = low
            self.acked_survives()
        self.identity_forever(replica)
        broker, agent = replica.broker, replica.agent
        if agent is not None and agent.fatal is not None:
            raise Violation(f"NoBugs: {replica.name}: {agent.fatal!r}") from agent.fatal
        confirmed = 0
        if broker is not None and broker.opened:
            confirmed = broker.store.confirm_offset
            if broker.role.role is Role.MASTER:
                self.one_master_per_epoch(replica, broker.role.epoch)
                if accepts(replica):
                    self.one_writer(replica)
        if agent is not None:
            confirmed = max(confirmed, agent.replication.confirm_offset)
        if confirmed != self._confirmed.get(replica.name) and self.promise.copies:
            self._confirmed[replica.name] = confirmed
            self.prefix_aligned(replica, self._learn(replica, confirmed))

    # Invariants

    def acked_survives(self) -> None:
        """Every message answered PUT_OK is on every member of the committed SyncStateSet, at its place."""
        if self.group is None or not self.promise.copies:
            return
        holders = 0
        for replica in self.replicas:
            if self._matches(replica, self.acked_end):
                holders += 1
                if any(replica.disk.log(0, _SIZE.size)):  # where nothing was acknowledged, an empty log has it all
                    self.emptied.discard(replica.name)
                if replica.name in self.cut and proven(replica) and self._matches(replica, len(self.truth)):
                    self.cut.discard(replica.name)
            elif replica.name in self.cut or (
                replica.name in self.emptied and self.group.sync_state_set != {self.ids.get(replica.name)}
            ):
                holders += 1
            elif self.ids.get(replica.name) in self.group.sync_state_set:
                raise Violation(
                    f"AckedSurvives: {replica.name} is in the SyncStateSet {sorted(self.group.sync_state_set)},"
                    f" messages up to {self.acked_end} were acknowledged, its log differs at or behind"
                    f" {self.matches[replica.name]}"
                )
        if holders + self.buried < self.promise.copies and self.acked_end:
            raise Violation(f"AckedSurvives: {holders} copies of what was acknowledged up to {self.acked_end}")

    def may_be_emptied(self, replica: SimReplica) -> bool:
        """Whether another member of the SyncStateSet keeps what was acknowledged."""
        others = () if self.group is None else self.group.sync_state_set - {self.ids.get(replica.name)}
        return bool(others) and not self.emptied

    def kept(self) -> int:
        """Up to where any member of the SyncStateSet has what was acknowledged, whole records."""
        members = frozenset() if self.group is None else self.group.sync_state_set
        return max(self._kept(one) for one in self.replicas if self.ids.get(one.name) in members)

    def _kept(self, replica: SimReplica) -> int:
        log = replica.disk.log(0, self.acked_end)
        same = next((at for at, byte in enumerate(log) if byte != self.truth[at]), len(log))
        return _whole(bytes(self.truth[:same]))

    def give_up(self, end: int) -> None:
        """No replica has what was acknowledged after `end`."""
        self.given_up = end if self.given_up is None else min(self.given_up, end)
        self.acked = {body: place for body, place in self.acked.items() if place[1] <= end}
        self.acked_end = min(self.acked_end, end)
        del self.truth[end:]
        self.matches = {name: min(at, end) for name, at in self.matches.items()}

    def may_be_cut(self, replica: SimReplica) -> bool:
        """Whether another member of the SyncStateSet runs, has kept everything acknowledged and knows it."""
        members = frozenset() if self.group is None else self.group.sync_state_set
        return any(
            one is not replica and self.ids.get(one.name) in members and one.name not in self.cut and proven(one)
            for one in self.replicas
        )

    def prefix_aligned(self, replica: SimReplica, confirmed: int) -> None:
        """What is confirmed on a replica is what was confirmed on any; of its own log too, whole records only."""
        if not self._matches(replica, confirmed) and not self._matches(replica, _whole(replica.disk.log(0, confirmed))):
            at = self.matches[replica.name]
            raise Violation(
                f"PrefixAligned: {replica.name} has confirmed {confirmed}, but differs from what was confirmed"
                f" elsewhere at or behind {at}"
            )

    def one_writer(self, replica: SimReplica) -> None:
        """Who accepts sends holds the writer lock, and is the only one if the configuration says so."""
        assert replica.broker is not None
        if replica.name in self.fenced and linked(replica):
            raise Violation(f"Fenced: {replica.name} accepts sends")
        if not replica.broker.store.writer.held:
            raise Violation(f"OneWriter: {replica.name} accepts sends without the writer lock")
        if self.promise.exclusive_acceptance:
            others = [other.name for other in self.replicas if other is not replica and accepts(other)]
            if others:
                raise Violation(f"OneWriter: {replica.name} and {' '.join(others)} accept sends")

    def one_master_per_epoch(self, replica: SimReplica, epoch: int) -> None:
        """No two replicas were ever granted one epoch."""
        first = self.granted.setdefault(epoch, replica.name)
        if first != replica.name:
            raise Violation(f"OneMasterPerEpoch: epoch {epoch} was granted to {first} and {replica.name}")

    def identity_forever(self, replica: SimReplica) -> None:
        """An id is one replica's, and a replica's id is forever."""
        broker_id = replica.broker_id
        if broker_id is None:
            return
        known = self.ids.get(replica.name)
        if known == broker_id:
            return
        if known is not None:
            raise Violation(f"IdentityForever: {replica.name} was {known} and is {broker_id}")
        if broker_id in self.ids.values():
            raise Violation(f"IdentityForever: {replica.name} is {broker_id} as well: {self.ids}")
        self.ids[replica.name] = broker_id

    # At the end, everything whole and quiet

    def finish(self) -> None:
        """All logs equal; what was acknowledged is in each exactly once, and in the consume queues."""
        ends = {}
        for replica in self.replicas:
            assert replica.broker is not None
            ends[replica.name] = replica.broker.store.max_offset
        if len(set(ends.values())) != 1:
            raise Violation(f"Alive: logs end at {ends} in calm times")
        end = next(iter(ends.values()))
        logs = {replica.name: replica.disk.log(0, end) for replica in self.replicas}
        if len(set(logs.values())) != 1:
            raise Violation("PrefixAligned: logs of equal length differ in calm times")
        log = logs[self.replicas[0].name]
        bodies = [bytes(record.body(log)) for record in _records(log, self.replicas[0])]
        if len(set(bodies)) != len(bodies):
            raise Violation(
                f"Once: {sorted(body for body in set(bodies) if bodies.count(body) > 1)[:5]} more than once"
            )
        if self.promise.copies or self.promise.kept_to_the_end:
            lost = self.acked.keys() - set(bodies)
            if lost:
                raise Violation(f"AckedSurvives: acknowledged and lost: {sorted(lost)[:10]}")
        for replica in self.replicas if self.promise.copies else ():
            assert replica.agent is not None
            for noted in replica.agent.replication.given_up:
                if self.given_up is None or noted.start < self.given_up:
                    raise Violation(f"LossesNoted: {replica.name} notes what is not lost: {noted}")
        for replica in self.replicas:
            visible = sum(queue.max_offset for queue in replica.disk.queues.values())
            if visible != len(bodies):
                raise Violation(f"QueuesComplete: {replica.name} shows {visible} of {len(bodies)} messages")

    # Inside

    def _learn(self, replica: SimReplica, end: int) -> int:
        """What is confirmed from here on, and up to where: whole records only, for acknowledgements count bytes, and a
        new master cuts the part of a record that it has."""
        known = len(self.truth)
        if end > known:
            data = replica.disk.log(known, end)
            self.truth += data[: _whole(data)]
        return min(end, len(self.truth))

    def _matches(self, replica: SimReplica, end: int) -> bool:
        at = self.matches[replica.name]
        if at >= end:
            return True
        if replica.disk.log(at, end) != self.truth[at:end]:
            return False
        self.matches[replica.name] = end
        return True


def _whole(log: bytes) -> int:
    """Where its last whole record ends."""
    position = 0
    while len(log) - position >= _SIZE.size:
        (size,) = _SIZE.unpack_from(log, position)
        if size <= 0 or position + size > len(log):
            break
        position += size
    return position


def accepts(replica: SimReplica) -> bool:
    """Whether its broker would take a send now."""
    broker = replica.broker
    return broker is not None and broker.role.refusal(broker.process.time()) is None


def follows(replica: SimReplica) -> bool:
    """Whether its sidecar is connected to a master and copies from it."""
    machine = None if replica.agent is None else replica.agent.machine
    return machine is not None and machine.role.replicating is ReplicationState.FOLLOWING


def proven(replica: SimReplica) -> bool:
    """Whether both processes run and say that its log has all that was acknowledged."""
    machine = None if replica.agent is None else replica.agent.machine
    if machine is None or machine.session.address is None:
        return False
    return machine.session.lost is None and machine.session.reported_unproven is None


def linked(replica: SimReplica) -> bool:
    """Whether its sidecar can send its broker anything. A broker that hung finds the end of the link when it
    continues."""
    return replica.agent is not None and replica.agent.broker.link.connected


def _records(log: bytes, replica: SimReplica) -> list[Record]:
    found: list[Record] = []
    position, size = 0, replica.disk.file_size
    while position < len(log):
        limit = min(len(log), position - position % size + size)
        try:
            record = read_record(log, position, limit, check_crc=True)
        except RecordError as error:
            raise Violation(f"WholeRecords: {replica.name} at {position}: {error}") from error
        if isinstance(record, Blank):
            position += record.size
        else:
            found.append(record)
            position += record.size
    return found
