"""Random stories of one broker group, told to the domain and to a plain model; all invariants after every step."""

from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rocketmq_controller.domain import evolve, invariants
from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.model import BrokerGroup, BrokerLiveInfo, Options
from rocketmq_controller.domain.requests.alter_sync_state_set import alter_sync_state_set
from rocketmq_controller.domain.requests.cleaning import clean_broker_data
from rocketmq_controller.domain.requests.elect_master import elect_master, groups_needing_election
from rocketmq_controller.domain.requests.registration import apply_broker_id, get_next_broker_id, register_broker
from rocketmq_controller.log import event_codec
from rocketmq_formats.remoting.controller import (
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
    ElectMasterResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    RegisterBrokerToControllerResponseHeader,
    SyncStateSet,
)
from tests.controller.domain.domain_kit import NAME, StaticView, apply_id, clean, elect, register, settle
from tests.controller.domain.plain_model import PlainGroup

ids = st.integers(1, 5)
# mostly right, sometimes off by one
drift = st.sampled_from([0] * 10 + [-1, 1])
id_sets = st.frozensets(ids, max_size=4)


class OneGroup(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.plain = PlainGroup()
        self.group: BrokerGroup | None = None
        self.log: list[bytes] = []
        self.history = invariants.History()

    @property
    def options(self) -> Options:
        return Options(enable_elect_unclean_master=self.plain.unclean)

    @property
    def view(self) -> StaticView:
        infos = {i: BrokerLiveInfo(*report, connection_id=i) for i, report in self.plain.alive.items()}
        return StaticView(infos, frozenset(self.plain.unheard))

    def commit(self, decision: Decision) -> None:
        """What the shell does: the events travel as bytes."""
        if decision.code != 0:
            assert decision.events == ()
            assert decision.remark
        if decision.events:
            self.log.append(event_codec.encode_events(decision.events))
        self.group = settle(self.group, decision, self.options)

    @initialize(members=st.integers(0, 4), elected=st.booleans())
    def begins_with(self, members: int, elected: bool) -> None:
        for broker_id in range(1, members + 1):
            self.apply(0, "x")
            self.comes_alive(broker_id, 0, 0, 0)
        if elected:
            self.elects(1, False)

    # The world

    @rule(broker_id=ids, epoch=st.integers(0, 2), offset=st.sampled_from([0, 5, 2**40]), priority=st.integers(0, 2))
    def comes_alive(self, broker_id: int, epoch: int, offset: int, priority: int) -> None:
        self.plain.alive[broker_id] = (epoch, offset, priority)
        self.plain.unheard.discard(broker_id)

    @rule()
    def everybody_lives(self) -> None:
        for broker_id in self.plain.members:
            self.comes_alive(broker_id, 1, 5, 1)

    @rule(broker_id=ids)
    def dies(self, broker_id: int) -> None:
        self.plain.alive.pop(broker_id, None)
        self.plain.unheard.discard(broker_id)

    @rule(heard=id_sets)
    def another_controller_leads(self, heard: Iterable[int]) -> None:
        self.plain.alive = {i: report for i, report in self.plain.alive.items() if i in heard}
        self.plain.unheard = set(range(1, 6)) - set(self.plain.alive)

    @rule()
    def grace_ends(self) -> None:
        self.plain.unheard = set()

    @rule(unclean=st.booleans())
    def unclean_election(self, unclean: bool) -> None:
        self.plain.unclean = unclean

    # Requests

    @rule(number=drift, who=st.sampled_from("xy"))
    def apply(self, number: int, who: str) -> None:
        header = get_next_broker_id(self.group, GetNextBrokerIdRequestHeader(cluster_name="C", broker_name=NAME)).header
        assert isinstance(header, GetNextBrokerIdResponseHeader)
        assert header.next_broker_id == self.plain.next_id
        broker_id = self.plain.next_id + number
        decision = apply_broker_id(self.group, apply_id(broker_id, f"{who}:1;7"))
        assert decision.code == self.plain.apply_id(broker_id, f"{who}:1;7")
        self.commit(decision)

    @rule(broker_id=ids, where=st.sampled_from(["x:1", "z:9"]), same_connection=st.booleans())
    def registers(self, broker_id: int, where: str, same_connection: bool) -> None:
        decision = register_broker(
            self.group, register(broker_id, where), self.view, connection_id=broker_id if same_connection else 99
        )
        header = decision.header
        assert isinstance(header, RegisterBrokerToControllerResponseHeader)
        expected = self.plain.register(broker_id, where, same_connection=same_connection)
        assert (decision.code, header.master_broker_id) == expected
        self.commit(decision)

    @rule(master=drift, epoch=drift, set_epoch=drift, wanted=id_sets, sane=st.sampled_from([True, True, False]))
    def alters(self, master: int, epoch: int, set_epoch: int, wanted: frozenset[int], sane: bool) -> None:
        who = (self.plain.master or 1) + master
        if sane:
            wanted = (wanted & set(self.plain.members) & set(self.plain.alive)) | {who}
        request = AlterSyncStateSetRequestHeader(
            broker_name=NAME, master_broker_id=who, master_epoch=self.plain.epoch + epoch
        )
        body = SyncStateSet(sync_state_set=wanted, sync_state_set_epoch=self.plain.set_epoch + set_epoch)
        decision = alter_sync_state_set(self.group, request, body, self.view)
        expected = self.plain.alter(who, self.plain.epoch + epoch, set(wanted), self.plain.set_epoch + set_epoch)
        assert decision.code == expected
        header = decision.header
        assert isinstance(header, AlterSyncStateSetResponseHeader)
        assert header.new_sync_state_set_epoch == (self.plain.set_epoch if expected == 0 else 0)
        self.commit(decision)

    @rule(broker_id=st.just(-1) | ids, designate=st.booleans())
    def elects(self, broker_id: int, designate: bool) -> None:
        decision = elect_master(self.group, elect(broker_id, designate=designate), self.view, self.options)
        expected = self.plain.elect(broker_id, designate=designate)
        assert decision.code == expected
        header = decision.header
        assert isinstance(header, ElectMasterResponseHeader)
        if expected in {0, 2011}:
            told = (header.master_broker_id, header.master_epoch, header.sync_state_set_epoch)
            assert told == (self.plain.master, self.plain.epoch, self.plain.set_epoch)
        self.commit(decision)

    @rule()
    def scan(self) -> None:
        state = {NAME: self.group} if self.group is not None else {}
        names = groups_needing_election(state, self.view, self.options)
        assert names == ((NAME,) if self.plain.needs_election() else ())
        if names:
            decision = elect_master(self.group, elect(), self.view, self.options)
            assert decision.code == self.plain.elect(-1, designate=False) == 0, "the scan names only who can be helped"
            self.commit(decision)

    @rule(wanted=st.frozensets(ids, min_size=1, max_size=2), forced=st.booleans())
    def cleans_some(self, wanted: frozenset[int], forced: bool) -> None:
        self.cleans(wanted, forced)

    @rule(forced=st.booleans(), luck=st.integers(0, 4))
    def cleans_all(self, forced: bool, luck: int) -> None:
        if luck == 4:
            self.cleans(None, forced)

    def cleans(self, wanted: frozenset[int] | None, forced: bool) -> None:
        listed = None if wanted is None else ";".join(map(str, wanted))
        decision = clean_broker_data(self.group, clean(listed, forced=forced), self.view)
        assert decision.code == self.plain.clean(None if wanted is None else set(wanted), forced=forced)
        self.commit(decision)

    # What must hold

    @invariant()
    def model_and_domain_agree(self) -> None:
        if self.group is None:
            assert self.plain.next_id == 1
            return
        invariants.check_group(self.group)
        self.history.observe(self.group)
        members = {i: (r.address, r.register_check_code) for i, r in self.group.replicas.items()}
        assert self.plain.as_tuple() == (
            self.group.next_broker_id,
            members,
            self.group.master_broker_id,
            self.group.master_epoch,
            self.group.sync_state_set,
            self.group.sync_state_set_epoch,
        )

    def teardown(self) -> None:
        """ReplayEqual: another member that reads the log, with a snapshot in the middle, holds the same."""
        replayed: dict[str, BrokerGroup] = {}
        for number, command in enumerate(self.log):
            if number == len(self.log) // 2:
                replayed = event_codec.decode_snapshot(event_codec.encode_snapshot(replayed))
            for event in event_codec.decode_events(command):
                after = evolve.evolve(replayed.get(event.broker_name), event)
                assert after is not None
                replayed[event.broker_name] = after
        present = {} if self.group is None else {NAME: self.group}
        assert invariants.state_digest(replayed) == invariants.state_digest(present)


TestOneGroup = OneGroup.TestCase
TestOneGroup.settings = settings(max_examples=300, stateful_step_count=50)
