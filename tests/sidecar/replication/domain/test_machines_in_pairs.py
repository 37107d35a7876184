"""The two machines against each other over a wire in memory: stories, and any interleaving with the invariants."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from rocketmq_formats.replication.frames import HAConnectionState as State
from tests.sidecar.replication.domain.memory_kit import MemoryGroup


def drain(group: MemoryGroup, broker_id: int) -> None:
    for _ in range(50):
        group.turn(broker_id, 1000, 1000)


def test_a_slave_copies_joins_and_is_waited_for() -> None:
    group = MemoryGroup(3)
    group.elect(1)
    group.append(40)
    assert group.master is not None
    assert group.master.acked == 0
    group.connect(2)
    drain(group, 2)
    link = group.links[2]
    assert (link.server.state, link.client.state) == (State.TRANSFER, State.TRANSFER)
    assert group.stores[2].log == group.stores[1].log
    assert group.stores[2].epochs == group.stores[1].epochs
    assert group.propose == {1, 2}
    group.decide("agree")
    group.append(10)
    assert group.master.acked == 40
    drain(group, 2)
    assert group.master.acked == 50


def test_batches_stay_within_an_epoch_and_a_file() -> None:
    group = MemoryGroup(2)
    group.elect(1)
    group.append(20)
    group.elect(1)
    group.append(20)
    group.connect(2)
    drain(group, 2)
    assert group.stores[2].log == bytes([1]) * 20 + bytes([2]) * 20
    assert group.stores[2].epochs.starts() == [(1, 0), (2, 20)]


def test_the_old_master_truncates_what_no_other_replica_has() -> None:
    group = MemoryGroup(2)
    group.elect(1)
    group.append(5)
    group.connect(2)
    drain(group, 2)
    group.decide("agree")
    group.append(7)  # only here
    group.elect(2)
    group.append(3)
    group.connect(1)
    drain(group, 1)
    assert group.stores[1].log == bytes([1] * 5 + [2] * 3)
    assert group.stores[1].epochs.starts() == [(1, 0), (2, 5)]


def test_an_epoch_without_bytes_does_not_lend_its_number() -> None:
    """Java keeps the number 2 here for what is written in epoch 3, and takes 1's bytes of epoch 2 for the same."""
    group = MemoryGroup(2)
    group.elect(1)
    group.append(5)
    group.elect(1)
    group.connect(2)
    drain(group, 2)
    group.decide("agree")
    assert group.stores[2].epochs.starts() == [(1, 0), (2, 5)]  # known by a heartbeat
    group.append(4)  # epoch 2, only here
    group.elect(2)
    group.append(6)
    group.connect(1)
    drain(group, 1)
    assert group.stores[1].log == group.stores[2].log == bytes([1] * 5 + [3] * 6)


def test_a_member_whose_admission_is_not_known_is_waited_for() -> None:
    """The answer to the wish is lost, the next wish is refused because it names the set before: that proves nothing."""
    group = MemoryGroup(3)
    group.elect(1)
    group.append(12)
    group.connect(2)
    drain(group, 2)
    group.decide("agree")
    group.connect(3)
    drain(group, 3)
    assert group.propose == {1, 2, 3}
    group.decide("lose the answer")
    group.append(2)
    group.turn(2, 1000, 1000)
    assert group.propose == {1, 2, 3}
    group.decide("refuse")
    drain(group, 2)
    assert group.master is not None
    assert group.master.acked == 12  # 3 only has that, and may be elected
    group.receive()
    drain(group, 3)
    assert group.master.acked == 14


class AnyInterleaving(RuleBasedStateMachine):
    """AckedSurvives and PrefixAligned under elections of members, lost connections, torn streams, lost answers."""

    @initialize()
    def begin(self) -> None:
        """Two in sync, and the third has a part."""
        self.group = MemoryGroup(3)
        self.group.elect(1)
        self.group.append(12)
        self.group.connect(3)
        self.group.turn(3, 100, 0)
        self.group.turn(3, 100, 100)
        self.group.connect(2)
        drain(self.group, 2)
        self.group.decide("agree")

    @rule(broker_id=st.integers(1, 3))
    def elect(self, broker_id: int) -> None:
        self.group.elect(broker_id)

    @rule()
    def elect_again(self) -> None:
        self.group.elect_again()

    @rule(size=st.integers(1, 20))
    def append(self, size: int) -> None:
        self.group.append(size)

    @rule(broker_id=st.integers(1, 3))
    def connect(self, broker_id: int) -> None:
        self.group.connect(broker_id)

    @rule(broker_id=st.integers(1, 3))
    def disconnect(self, broker_id: int) -> None:
        self.group.disconnect(broker_id)

    @rule(broker_id=st.integers(1, 3), up=st.integers(0, 60), down=st.integers(0, 200))
    def turn(self, broker_id: int, up: int, down: int) -> None:
        self.group.turn(broker_id, up, down)

    @rule(broker_id=st.integers(1, 3))
    def catch_up(self, broker_id: int) -> None:
        for _ in range(8):
            self.group.turn(broker_id, 1000, 1000)

    @rule(how=st.sampled_from(["agree", "refuse", "lose the answer"]))
    def decide(self, how: str) -> None:
        self.group.decide(how)

    @rule()
    def receive(self) -> None:
        self.group.receive()


TestAnyInterleaving = AnyInterleaving.TestCase
TestAnyInterleaving.settings = settings(max_examples=150, stateful_step_count=60)
