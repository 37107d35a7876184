"""The controller itself in the simulated quorum: its pipeline on every leader, its state machine on every member.

Clients apply for ids, register, elect, alter and clean under random liveness, while the storm blows. Checked with every
applied event: the invariants of the domain; with every answer: that elections and changes of a SyncStateSet are
linearizable, by their versions (syncStateSetEpoch) against real time; at the end: that nothing answered is lost.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from weakref import WeakKeyDictionary

from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.evolve import evolve
from rocketmq_controller.domain.invariants import History, check_transition
from rocketmq_controller.domain.model import BrokerGroup, BrokerLiveInfo, Options, canonical_bytes
from rocketmq_controller.domain.requests.alter_sync_state_set import alter_sync_state_set
from rocketmq_controller.domain.requests.cleaning import clean_broker_data
from rocketmq_controller.domain.requests.elect_master import elect_master
from rocketmq_controller.domain.requests.queries import get_replica_info
from rocketmq_controller.domain.requests.registration import apply_broker_id, register_broker
from rocketmq_controller.log import event_codec
from rocketmq_controller.log.pipeline import Pipeline, Settle
from rocketmq_controller.log.state_machine import ControllerStateMachine
from rocketmq_controller.raft import RaftError, StateMachine
from rocketmq_formats.addresses import format_address
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.controller import (
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
    ApplyBrokerIdRequestHeader,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    RegisterBrokerToControllerRequestHeader,
    SyncStateSet,
)
from tests.sim.checks import Violation
from tests.sim.quorum.clients import Serving
from tests.sim.quorum.world import World

GROUPS = ("b0", "b1", "b2")
REPLICAS = 4


class CheckedMachine(ControllerStateMachine):
    """Checks every event as it is applied; shared `history` sees all members and all their lives."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history

    def apply(self, index: int, command: bytes) -> frozenset[str]:
        groups = dict(self.groups)
        for event in event_codec.decode_events(command):
            before = groups.get(event.broker_name)
            after = evolve(before, event)
            check_transition(before, event, after, Options())
            if after is not None:
                self._history.observe(after)
                groups[event.broker_name] = after
        void = super().apply(index, command)
        if void:
            raise Violation(f"NoVoidEvents: the pipeline let {sorted(void)} be decided on another state")
        self._history.observe_state(index, self.groups)
        return void


class View:
    """Who lives, by dice: a set of the living for each moment a client asks."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._dead = {(name, rng.randint(1, REPLICAS)) for name in GROUPS for _ in range(rng.randint(0, 2))}

    def alive(self, broker_name: str, broker_id: int) -> bool:
        return (broker_name, broker_id) not in self._dead

    def unheard(self, broker_name: str, broker_id: int) -> bool:
        del broker_name, broker_id
        return False

    def info(self, broker_name: str, broker_id: int) -> BrokerLiveInfo | None:
        if not self.alive(broker_name, broker_id):
            return None
        return BrokerLiveInfo(epoch=1, max_offset=self._rng.randint(0, 3))


@dataclass
class Versioned:
    """One answered operation that made, or saw, a version of a group."""

    began: float
    ended: float
    made: int | None
    seen: int


@dataclass
class Driver:
    """A pipeline on one process that leads, with the turns of its loop in virtual time."""

    leader: Serving
    pipeline: Pipeline = field(init=False)

    def __post_init__(self) -> None:
        state = self.leader.state
        assert isinstance(state, ControllerStateMachine)
        self.pipeline = Pipeline(self, state)

    @property
    def is_leader(self) -> bool:
        return self.leader.is_leader

    def propose(self, command: bytes, settle: Settle) -> None:
        def done(value: object, error: RaftError | None) -> None:
            if error is not None:
                settle(error)
            else:
                assert isinstance(value, tuple)
                settle(value[1])

        self.leader.propose(command, done)

    def call_soon(self, flush: Callable[[], None]) -> None:
        self.leader.after(0.0, flush)


class Controllers:
    """Implements `world.Workload`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._host = world.hosts[0]
        self._rng = Random(world.rng.random())
        self._history = History()
        self._drivers: WeakKeyDictionary[object, Driver] = WeakKeyDictionary()
        self._operations: dict[str, list[Versioned]] = {name: [] for name in GROUPS}
        self._taken: dict[tuple[str, int], str] = {}
        self.answers: dict[str, int] = {}

    def make_state_machine(self) -> StateMachine:
        return CheckedMachine(self._history)

    def client(self, leader: Serving) -> None:
        """One or several requests that arrive together."""
        driver = self._drivers.get(leader.process)
        if driver is None:
            driver = self._drivers[leader.process] = Driver(leader)
        for _ in range(self._rng.choice((1, 1, 2, 6))):
            self._request(driver.pipeline)

    def _request(self, pipeline: Pipeline) -> None:
        rng, name, began = self._rng, self._rng.choice(GROUPS), self._world.now
        view = View(rng)
        group = pipeline.group(name)
        kind = rng.choices(
            ("apply", "register", "elect", "alter", "read", "clean"),
            (6 if group is None or len(group.replicas) < REPLICAS else 0.3, 2, 4, 8, 4, 0.2),
        )[0]
        request = getattr(self, f"_{kind}")(name, group, view)

        def answer(decision: Decision) -> None:
            self.answers[f"{kind} {decision.code.name}"] = self.answers.get(f"{kind} {decision.code.name}", 0) + 1
            self._judge(kind, name, began, request, decision)

        pipeline.submit(name, request[0], answer)

    # Requests: (decide, header), built from what a client may know, right or stale.

    def _apply(self, name: str, group: BrokerGroup | None, view: View) -> "_Request":
        del view
        following = 1 if group is None else group.next_broker_id
        broker_id = self._rng.choice((following, following, max(1, following - 1), following + 1))
        header = ApplyBrokerIdRequestHeader(
            cluster_name="c",
            broker_name=name,
            applied_broker_id=broker_id,
            register_check_code=f"h:{self._rng.randint(1, 3)};{self._rng.randint(1, 3)}",
        )
        return (lambda now: apply_broker_id(now, header)), header

    def _register(self, name: str, group: BrokerGroup | None, view: View) -> "_Request":
        del group
        header = RegisterBrokerToControllerRequestHeader(
            cluster_name="c",
            broker_name=name,
            broker_id=self._rng.randint(1, REPLICAS),
            broker_address=format_address(self._host, self._rng.randint(1, 3)),
        )
        connection = self._rng.choice((None, 1))
        return (lambda now: register_broker(now, header, view, connection_id=connection)), header

    def _elect(self, name: str, group: BrokerGroup | None, view: View) -> "_Request":
        del group
        header = ElectMasterRequestHeader(
            broker_name=name,
            broker_id=self._rng.choice((-1, 1, 2, 3)),
            designate_elect=self._rng.random() < 0.3,
        )
        return (lambda now: elect_master(now, header, view, Options())), header

    def _alter(self, name: str, group: BrokerGroup | None, view: View) -> "_Request":
        rng = self._rng
        master = (group.master_broker_id if group is not None else None) or 1
        known = sorted(group.replicas) if group is not None and group.replicas else [1]
        header = AlterSyncStateSetRequestHeader(
            broker_name=name,
            master_broker_id=master if rng.random() < 0.9 else rng.choice(known),
            master_epoch=(group.master_epoch if group is not None else 0) - (rng.random() < 0.1),
        )
        body = SyncStateSet(
            sync_state_set=frozenset({master, *rng.sample(known, rng.randint(0, len(known)))}),
            sync_state_set_epoch=(group.sync_state_set_epoch if group is not None else 0) - (rng.random() < 0.1),
        )
        return (lambda now: alter_sync_state_set(now, header, body, view)), header

    def _read(self, name: str, group: BrokerGroup | None, view: View) -> "_Request":
        del name, group, view
        return get_replica_info, None

    def _clean(self, name: str, group: BrokerGroup | None, view: View) -> "_Request":
        del group
        header = CleanControllerBrokerDataRequestHeader(
            broker_name=name,
            broker_controller_ids_to_clean=self._rng.choice((None, "1", "2;3")),
            is_clean_living_broker=self._rng.random() < 0.5,
        )
        return (lambda now: clean_broker_data(now, header, view)), header

    # Answers

    def _judge(self, kind: str, name: str, began: float, request: "_Request", decision: Decision) -> None:
        if decision.code is not ResponseCode.SUCCESS:
            return
        header, body = decision.header, decision.body
        if kind == "apply":
            asked = request[1]
            assert isinstance(asked, ApplyBrokerIdRequestHeader)
            first = self._taken.setdefault((name, asked.applied_broker_id), asked.register_check_code)
            if first != asked.register_check_code:
                raise Violation(f"IdentityForever: {name}:{asked.applied_broker_id} was answered to {first} before")
        elif isinstance(header, ElectMasterResponseHeader | AlterSyncStateSetResponseHeader):
            version = (
                header.sync_state_set_epoch
                if isinstance(header, ElectMasterResponseHeader)
                else header.new_sync_state_set_epoch
            )
            assert version is not None
            self._ordered(name, Versioned(began, self._world.now, version, version))
        elif kind == "read" and isinstance(body, SyncStateSet):
            self._ordered(name, Versioned(began, self._world.now, None, body.sync_state_set_epoch))

    def _ordered(self, name: str, new: Versioned) -> None:
        """Linearizability of a version register: versions are unique, and grow with real time."""
        for other in self._operations[name]:
            if new.made is not None and other.made == new.made:
                raise Violation(f"Linearizable: version {new.made} of {name} was made twice: {other} and {new}")
            if other.ended < new.began and other.seen > new.seen:
                raise Violation(f"Linearizable: {name} went back: {other} had ended when {new} began")
            if new.made is not None and other.ended < new.began and other.seen >= new.made:
                raise Violation(f"Linearizable: {name}: {other} had ended when {new} began")
        self._operations[name].append(new)

    def check(self, name: str, state: StateMachine) -> None:
        """Everything is checked where it is applied."""

    def finish(self, states: list[StateMachine]) -> None:
        machines = [state for state in states if isinstance(state, ControllerStateMachine)]
        if len({canonical_bytes(machine.groups) for machine in machines}) > 1:
            raise Violation("ReplayEqual: members that hold everything differ")
        for machine in machines:
            for name, operations in self._operations.items():
                newest = max((operation.seen for operation in operations), default=0)
                group = machine.groups.get(name)
                if newest and (group is None or group.sync_state_set_epoch < newest):
                    raise Violation(f"AckedSurvives: version {newest} of {name} was answered, now it is {group}")
            for (name, broker_id), code in self._taken.items():
                group = machine.groups.get(name)
                if group is None or group.next_broker_id <= broker_id:
                    raise Violation(f"AckedSurvives: {name}:{broker_id} was given to {code}, now it is {group}")


_Request = tuple[Callable[[BrokerGroup | None], Decision], object]
