"""The simulation of a quorum can fail: each of these defects is found within some stories, by the invariant it breaks.

Reviewers found some of them in an earlier state: stores that vote although they forgot what they said, leases by the
leader's own time-out, promises that a cut connection lifts.
"""

from functools import partial
from typing import Any, NamedTuple

import pytest

from rocketmq_controller.raft import LeadershipTerms, RaftStatus, Role
from rocketmq_controller.raft.configuration import majority
from rocketmq_controller.raft.consensus.machine import RaftMachine
from tests.sim.checks import Violation
from tests.sim.quorum.faults import MEMBER_FAULTS
from tests.sim.quorum.kit import left_alone_with_an_older_disk
from tests.sim.quorum.run import run
from tests.sim.stories import Run, run_all

PATIENCE = 120
"""Seeds."""

_take_echo, _on_leader_message = RaftMachine.take_echo, RaftMachine.on_leader_message
_forget_connection, _take_standing = RaftMachine._forget_connection, RaftMachine.take_standing
_start_clockwork, _set_peers = RaftMachine.start_clockwork, RaftMachine._set_peers


def _own_time_out(machine: RaftMachine, node: Any, stamp: float, promise: float) -> None:
    _take_echo(machine, node, stamp, max(promise, machine.asking))


def _own_promise(machine: RaftMachine, node: Any, term: int, stamp: float, _promise: float) -> float:
    return _on_leader_message(machine, node, term, stamp, 0.0)


def _released(machine: RaftMachine, node: Any) -> None:
    _forget_connection(machine, node)
    if node == machine.leader:
        machine._bound_until = machine.now
        machine.election_deadline = min(machine.election_deadline, machine.now + machine.until_our_turn())


def _counts_at_once(machine: RaftMachine, node: Any, *, counts: bool) -> None:
    del counts
    _take_standing(machine, node, counts=True)


def _free_at_once(machine: RaftMachine) -> None:
    _start_clockwork(machine)
    machine._bound_until = machine._trusted_from = machine._recorded_until = machine.now
    machine.election_deadline = machine.now + machine.until_our_turn() if machine.peers else machine.now


def _free_after_own_time_out(machine: RaftMachine) -> None:
    _start_clockwork(machine)
    until = machine.now + machine.timings.election_min
    machine._bound_until = machine._trusted_from = machine._recorded_until = until
    if machine.peers:
        machine.election_deadline = until + machine.until_our_turn()


def _learners_count(machine: RaftMachine) -> None:
    _set_peers(machine)
    machine._voters = frozenset(node for node in machine.peers if node.id in machine.configuration.ids)


def _committed(machine: RaftMachine) -> frozenset[str]:
    return machine.configurations.at(machine.commit_index).voters


def _committed_voters(machine: RaftMachine) -> frozenset[Any]:
    return frozenset(node for node in machine.peers if node.id in _committed(machine))


def _begins_with_the_lease(terms: LeadershipTerms, status: RaftStatus) -> bool:
    before, terms._term = terms._term, status.term if status.is_leader else None
    return terms._term is not None and terms._term != before


def _begins_with_the_election(terms: LeadershipTerms, status: RaftStatus) -> bool:
    before, terms._term = terms._term, status.term if status.role is Role.LEADER else None
    return terms._term is not None and terms._term != before


class Defect(NamedTuple):
    invariants: set[str]
    """One of them is found broken; which one comes first depends on the story."""
    instead: dict[tuple[type, str], Any]
    """Attributes of the product, and what stands there instead."""
    run: Run = run
    """With all faults, or with those that show it soon."""


def only(*faults: str) -> Run:
    return partial(run, only=faults)


DEFECTS = {
    "a new store votes": Defect(
        {"ElectionSafety", "LeaderCompleteness", "LinearizableReads", "AckedSurvives", "StateMachineSafety"},
        {(RaftMachine, "is_sound"): lambda _: True, (RaftMachine, "take_standing"): _counts_at_once},
        only("wipe", "kill", "power", "split", "one_way", "sleep"),
    ),
    "the lease goes by the leader's own time-out": Defect(
        {"LeaseSafety"},
        {(RaftMachine, "take_echo"): _own_time_out, (RaftMachine, "on_leader_message"): _own_promise},
        only("other_timings", "split", "one_way", "reset", "foreign_reset", "sleep"),
    ),
    "a connection that ends lifts the promise": Defect(
        {"LeaseSafety"}, {(RaftMachine, "_forget_connection"): _released}, only("foreign_reset", "one_way")
    ),
    "a restart with a shorter time-out shortens the promise": Defect(
        {"LeaseSafety"},
        {(RaftMachine, "start_clockwork"): _free_after_own_time_out},
        only("lean_on_promises", "other_timings"),
    ),
    "a restart lifts the promise": Defect(
        {"LeaseSafety"}, {(RaftMachine, "start_clockwork"): _free_at_once}, only("lean_on_promises", "weather")
    ),
    "the log does not matter in elections": Defect(
        {"LeaderCompleteness"}, {(RaftMachine, "_is_up_to_date"): lambda *_: True}
    ),
    "followers are bound to nobody": Defect(
        {"LeaseSafety"}, {(RaftMachine, "is_bound"): lambda _: False}, only("sleep", "split", "one_way")
    ),
    "the time of grace begins with the lease": Defect(
        {"GraceFirst"}, {(LeadershipTerms, "begins"): _begins_with_the_lease}, only("slow_disk", "kill_leader")
    ),
    "the time of grace begins with the election": Defect(
        {"GraceFirst"}, {(LeadershipTerms, "begins"): _begins_with_the_election}
    ),
    "several changes of the members at a time": Defect(
        {"OneChangeAtATime"},
        {(RaftMachine, "is_changing"): property(lambda _: False)},
        only("add", "remove", "slow_disk"),
    ),
    "a learner counts": Defect(
        {"Alive", "CommitQuorum", "ElectionQuorum"},
        {(RaftMachine, "_set_peers"): _learners_count},
        only(*MEMBER_FAULTS),
    ),
    "a learner votes before it has caught up": Defect(
        {"Alive"}, {(RaftMachine, "is_ready_to_vote"): lambda *_: True}, only(*MEMBER_FAULTS)
    ),
    "members count by the committed configuration": Defect(
        {"ElectionQuorum", "CommitQuorum", "Alive"},
        {
            (RaftMachine, "voters"): property(_committed_voters),
            (RaftMachine, "majority"): lambda machine: majority(len(_committed(machine))),
            (RaftMachine, "counts_itself"): lambda machine: machine.self_id in _committed(machine),
        },
        only(*MEMBER_FAULTS),
    ),
    "a store that was set back is trusted": Defect(
        {"NewStoresWait"}, {(RaftMachine, "_remembers_more"): lambda *_: False}, only("set_back", "kill")
    ),
    "what members reported is forgotten by a restart": Defect(
        {"NewStoresWait"}, {(RaftMachine, "_recall"): lambda _: None}, only("set_back")
    ),
    "logs that end before what is known to be committed are elected": Defect(
        {"LeaderCompleteness"}, {(RaftMachine, "holds_commit"): lambda *_: True}, left_alone_with_an_older_disk
    ),
    "hashes of logs are not compared": Defect(
        {"StateMachineSafety", "ReplayEqual"}, {(RaftMachine, "compare_chain"): lambda *_: None}, only("alter", "kill")
    ),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS)
def test_a_defect_is_found(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    for (owner, name), instead in defect.instead.items():
        assert hasattr(owner, name)
        monkeypatch.setattr(owner, name, instead)
    with pytest.raises(Violation) as found:
        run_all(defect.run, range(PATIENCE))
    assert found.value.invariant in defect.invariants
