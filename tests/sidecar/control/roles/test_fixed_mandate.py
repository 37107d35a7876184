"""A replica without controllers: the machine between its broker and replication, in virtual time."""

from collections import deque
from collections.abc import Callable

import pytest

from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_formats.replica_link import (
    PROTOCOL,
    CopyFrom,
    Following,
    FromSidecar,
    Grant,
    Hello,
    LogState,
    MasterKnown,
    NoRole,
    Others,
    Prepare,
    Prepared,
    Registered,
    Release,
    Released,
    Welcome,
)
from rocketmq_sidecar.domain.actions import (
    Action,
    Actions,
    AdoptSyncSet,
    BeginEpoch,
    Follow,
    HandedOver,
    Heartbeat,
    OpenLog,
    Request,
    SendToBroker,
    StopReplication,
)
from rocketmq_sidecar.domain.control.hand_over import Outcome
from rocketmq_sidecar.domain.control.machine import ControlMachine
from rocketmq_sidecar.domain.controllers.fixed_mandate import EPOCH, PATIENCE
from rocketmq_sidecar.domain.options import Options

OWN, MASTER, OTHER, THIRD = (f"10.0.0.{number}:10911" for number in (9, 1, 2, 3))
NOBODY = Registered()
END = 100
FOREVER = float("inf")


class Alone:
    """One machine; its broker and replication do at once what they are told."""

    def __init__(self, broker_id: int, *, relaxed: bool = False) -> None:
        options = Options(cluster_name="C", broker_name="broker-a", controllers=(), fixed_id=broker_id, relaxed=relaxed)
        self.machine = ControlMachine(options, identity=None, applied=None)
        self.now = 1000.0
        self.lost: str | None = None
        self.unproven: str | None = None
        self.told: list[FromSidecar] = []
        """Without `NoRole`."""
        self.reason = ""
        """Why it has no role, as its broker was told last."""
        self.done: list[Action] = []
        self._events: deque[Callable[[], Actions]] = deque()

    def start(self, registered: Registered | None = None, *, log: LogState | None = None) -> None:
        hello = Hello(PROTOCOL, "C", "broker-a", OWN, 0, END, END, 4096, log or LogState(), registered=registered)
        self.do(lambda: self.machine.on_hello(hello, f"{OWN};1", self.now))

    def registered(self, addresses: dict[int, str]) -> None:
        self.do(lambda: self.machine.on_registered(Registered(addresses), self.now))

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.machine.wake_at <= until:
            self.now = self.machine.wake_at
            self.do(lambda: self.machine.on_tick(self.now))
        self.now = until

    def do(self, event: Callable[[], Actions]) -> None:
        self._events.append(event)
        while self._events:
            for action in self._events.popleft()():
                self.done.append(action)
                self._perform(action)

    def _perform(self, action: Action) -> None:
        machine, put = self.machine, self._events.append
        match action:
            case SendToBroker(NoRole(reason)):
                self.reason = reason
            case SendToBroker(message):
                self.told.append(message)
                match message:
                    case Prepare(epoch):
                        put(lambda: machine.on_broker_message(Prepared(epoch, END), self.now))
                    case Release():
                        put(lambda: machine.on_broker_message(Released(END), self.now))
            case OpenLog(hello):
                put(lambda: machine.on_log_opened(hello, self.lost, self.now, unproven=self.unproven))
            case BeginEpoch(epoch):
                put(lambda: machine.on_begun(epoch, None, self.now))
            case StopReplication():
                put(lambda: machine.on_replication_stopped(self.now))

    @property
    def granted(self) -> bool:
        return any(isinstance(message, Grant) for message in self.told)

    @property
    def known(self) -> list[bool]:
        return [message.known for message in self.told if isinstance(message, MasterKnown)]

    @property
    def followed(self) -> list[Follow]:
        return [action for action in self.done if isinstance(action, Follow)]

    @property
    def copied(self) -> list[str]:
        """Of whom its broker copies the tables, one address after another."""
        return [message.master_address for message in self.told if isinstance(message, CopyFrom | Following)]

    def aligned(self, master_address: str) -> None:
        self.do(lambda: self.machine.on_aligned(master_address, self.now))

    def set(self) -> tuple[list[int], int]:
        """The agreed SyncStateSet, and its epoch."""
        agreed = self.machine.session.group.agreed
        return sorted(agreed.sync_state_set), agreed.sync_state_set_epoch

    def propose(self, *members: int, epoch: int | None = None) -> None:
        epoch = self.set()[1] if epoch is None else epoch
        wanted = SyncStateSet(sync_state_set=frozenset(members), sync_state_set_epoch=epoch)
        self.do(lambda: self.machine.on_proposal(wanted, self.now))


def master(**kinds: bool) -> Alone:
    one = Alone(0, **kinds)
    one.start(NOBODY)
    assert one.granted
    return one


def slave(registered: dict[int, str]) -> Alone:
    one = Alone(2)
    one.start(Registered(registered))
    return one


@pytest.mark.parametrize("relaxed", [False, True])
def test_the_master_begins_when_name_servers_have_answered(relaxed: bool) -> None:
    one = Alone(0, relaxed=relaxed)
    one.start()
    assert (one.told, one.reason) == ([Welcome(0)], "no name server has said yet who is in the group")
    one.registered({1: OTHER, 2: THIRD})
    assert one.told[1:] == [Prepare(EPOCH), Others(EPOCH, (OTHER, THIRD)), Grant(EPOCH, FOREVER)]
    begun = next(action for action in one.done if isinstance(action, BeginEpoch))
    assert (begun.epoch, begun.max_offset, begun.agreed.sync_state_set) == (EPOCH, END, {0})
    one.run(3600)
    assert one.machine.unready(one.now) is None
    assert one.machine.remark(one.now) is None


def test_name_servers_that_do_not_answer_hold_it_up_for_a_while_only() -> None:
    one = Alone(0)
    one.start()
    one.run(PATIENCE - 0.01)
    assert not one.granted
    one.run(0.02)
    assert one.granted
    assert Others(EPOCH, ()) in one.told


def test_a_master_does_not_ask_itself_for_newer_tables() -> None:
    one = Alone(0)
    one.start(Registered({0: OWN, 1: OTHER}))
    assert Others(EPOCH, (OTHER,)) in one.told


def test_a_second_master_does_not_begin() -> None:
    one = Alone(0)
    one.start(Registered({0: OTHER}))
    one.run(600)
    assert not one.granted
    assert "list 10.0.0.2:10911 with brokerId 0" in one.reason
    one.registered({})
    assert one.granted


def test_two_masters_that_began_at_the_same_time_say_so() -> None:
    one = master()
    one.registered({0: OTHER})
    assert "one of the two masters must be stopped" in str(one.machine.remark(one.now))
    assert one.machine.unready(one.now) is None
    one.registered({0: OWN})
    assert one.machine.remark(one.now) is None


def test_a_master_that_lost_something_waits_for_an_operator() -> None:
    one = Alone(0, relaxed=True)
    one.lost = "the log ends before its mark"
    one.start(NOBODY)
    one.run(600)
    assert not one.granted
    assert one.reason == one.machine.unready(one.now)
    assert one.reason.startswith(f"{one.lost}. Without controllers: exchange brokerId and brokerRole with the slave")


def test_an_unproven_master_waits_for_an_operator() -> None:
    one = Alone(0)
    one.unproven = "the machine lost power"
    one.start(NOBODY)
    one.run(600)
    assert not one.granted
    assert one.reason == one.machine.unready(one.now)
    assert "delete .broker.boot and .broker.acked" in one.reason


def test_a_master_reads_the_end_of_its_log_again_before_it_begins() -> None:
    one = Alone(0)
    one.start(NOBODY, log=LogState(checked=False))
    assert "read again" in one.reason
    one.do(lambda: one.machine.on_log(LogState(), one.now))
    assert one.granted
    one.do(lambda: one.machine.on_log(LogState(damage=50, reason="a bad checksum"), one.now))
    assert one.machine.role.master_of == EPOCH, "nobody could take its place"


def test_the_set_is_what_the_master_proposes() -> None:
    one = master()
    members, epoch = one.set()
    assert members == [0]
    one.propose(0, 2)
    assert one.set() == ([0, 2], epoch + 1)
    adopted = [action.agreed for action in one.done if isinstance(action, AdoptSyncSet)]
    assert adopted[-1] == SyncStateSet(sync_state_set=frozenset({0, 2}), sync_state_set_epoch=epoch + 1)
    one.propose(0, 3, epoch=epoch)
    assert one.set() == ([0, 2], epoch + 1), "it was based on an older set"


def test_a_broker_that_comes_back_is_master_again_with_a_new_set() -> None:
    one = master()
    one.propose(0, 1, 2)
    epoch = one.set()[1]
    one.do(lambda: one.machine.on_broker_gone(one.now))
    assert one.machine.role.at_rest
    one.told.clear()
    one.start(NOBODY)
    assert one.told == [Welcome(0), Prepare(EPOCH), Others(EPOCH, ()), Grant(EPOCH, FOREVER)]
    assert one.set() == ([0], epoch + 1)


def test_mastership_stays_where_it_is() -> None:
    one = master()
    one.propose(0, 1)
    one.do(lambda: one.machine.on_in_sync(EPOCH, 2, one.now))
    one.do(lambda: one.machine.on_hand_over(None, 5.0, one.now))
    ended = [action for action in one.done if isinstance(action, HandedOver)]
    assert [end.outcome for end in ended] == [Outcome.NOT_NOW]
    one.do(lambda: one.machine.on_stop(one.now))
    assert Release() in one.told
    assert one.machine.at_rest
    assert not [action for action in one.done if isinstance(action, Request | Heartbeat)]


def test_a_master_without_followers_stays_master() -> None:
    one = master()
    one.propose(0, 1)
    one.do(lambda: one.machine.on_in_sync(EPOCH, 1, one.now))
    one.run(3600)
    assert one.machine.role.master_of == EPOCH


def test_a_slave_follows_the_address_that_name_servers_list() -> None:
    one = slave({0: MASTER, 2: OWN})
    assert one.followed == [Follow(EPOCH, 0, MASTER)]
    assert one.told == [Welcome(2), Following(EPOCH, 0, "")]
    one.registered({0: OTHER, 2: OWN})
    assert one.followed[1:] == [Follow(EPOCH, 0, OTHER)]
    one.registered({2: OWN})
    assert len(one.followed) == 2, "it waits for the last one"


def test_the_tables_are_copied_of_a_master_whose_log_continues_this_one() -> None:
    one = slave({0: MASTER, 2: OWN})
    one.run(3600)
    assert one.copied == [""], "it is listed, and that says nothing of its disk"
    one.aligned(MASTER)
    one.do(lambda: one.machine.on_caught_up(one.now))
    assert one.told[2:] == [CopyFrom(MASTER)]
    one.aligned("")
    one.do(lambda: one.machine.on_master_lost(one.now))
    one.run(3600)
    assert one.told[3:] == [CopyFrom("")], "what begins at its address may have another disk"
    one.aligned(MASTER)
    assert one.copied[3:] == [MASTER]


def test_the_tables_of_another_master_are_not_copied_before_the_logs_are_compared() -> None:
    one = slave({0: MASTER, 2: OWN})
    one.aligned(MASTER)
    one.registered({0: OTHER, 2: OWN})
    assert one.told[3:] == [Following(EPOCH, 0, "")], "the connection to the first one has not ended yet"
    one.aligned("")
    assert one.copied[2:] == [""]
    one.aligned(OTHER)
    assert one.copied[3:] == [OTHER]


def test_a_broker_that_comes_back_copies_nothing_before_the_logs_are_compared_again() -> None:
    one = slave({0: MASTER, 2: OWN})
    one.aligned(MASTER)
    one.do(lambda: one.machine.on_broker_gone(one.now))
    one.told.clear()
    one.start(Registered({0: MASTER, 2: OWN}))
    assert one.told == [Welcome(2), Following(EPOCH, 0, "")]


def test_a_slave_that_was_master_at_this_address_does_not_follow_itself() -> None:
    one = slave({0: OWN})
    assert one.followed == [Follow(EPOCH, 0, "")]


def test_a_slave_without_a_master_is_a_slave_that_may_act() -> None:
    one = slave({2: OWN})
    assert one.told == [Welcome(2), Following(EPOCH, 0, ""), MasterKnown(False)]
    one.registered({0: MASTER, 2: OWN})
    assert one.told[3:] == [Following(EPOCH, 0, "")]
    assert one.followed[1:] == [Follow(EPOCH, 0, MASTER)]


def test_there_is_a_master_while_it_is_listed_or_connected() -> None:
    one = slave({0: MASTER, 2: OWN})
    one.do(lambda: one.machine.on_caught_up(one.now))
    one.registered({2: OWN})
    assert one.known == [], "name servers lost sight of it, this replica did not"
    one.do(lambda: one.machine.on_master_lost(one.now))
    assert one.known == [False]
    one.registered({0: MASTER, 2: OWN})
    assert one.known == [False, True], "it registers when it serves"


def test_a_slave_with_a_damaged_log_follows() -> None:
    one = Alone(2)
    one.lost = "the log ends before its mark"
    one.start(Registered({0: MASTER}), log=LogState(checked=False))
    assert one.followed == [Follow(EPOCH, 0, MASTER)]
    one.do(lambda: one.machine.on_caught_up(one.now))
    assert one.machine.session.lost is None
