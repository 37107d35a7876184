"""The simulation of a quorum can fail: each of these defects is found within some stories.

Reviewers found some of them in an earlier state: stores that vote although they forgot what they said, leases by the
leader's own time-out, promises that a cut connection lifts.
"""

from collections.abc import Callable
from typing import Any

import pytest

from rocketmq_controller.raft.consensus.machine import RaftMachine
from tests.sim.checks import Violation
from tests.sim.faults import run
from tests.sim.stories import run_all

PATIENCE = 120
"""Seeds."""

_take_echo, _on_leader_message = RaftMachine.take_echo, RaftMachine.on_leader_message
_forget_connection, _take_standing = RaftMachine._forget_connection, RaftMachine.take_standing


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


DEFECTS: dict[str, dict[str, Callable[..., Any]]] = {
    "a new store votes": {"is_sound": lambda _: True, "take_standing": _counts_at_once},
    "the lease goes by the leader's own time-out": {"take_echo": _own_time_out, "on_leader_message": _own_promise},
    "a connection that ends lifts the promise": {"_forget_connection": _released},
    "the log does not matter in elections": {"_is_up_to_date": lambda *_: True},
    "followers are bound to nobody": {"is_bound": lambda _: False},
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, instead in DEFECTS[defect].items():
        assert hasattr(RaftMachine, name)
        monkeypatch.setattr(RaftMachine, name, instead)
    with pytest.raises(Violation):
        run_all(run, range(PATIENCE))
