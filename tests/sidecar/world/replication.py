"""Replication in the world, without a byte: who holds the writer lock, who follows whom, which set a master wants."""

from collections.abc import Callable, Sequence
from functools import partial

from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_sidecar.domain.actions import (
    AcceptLoss,
    Action,
    Actions,
    AdoptSyncSet,
    BeginEpoch,
    Follow,
    MarkProven,
    ProposalRefused,
    StopReplication,
    WatchCatchUp,
)
from rocketmq_sidecar.domain.control.machine import ControlMachine
from tests.sidecar.world.node import Node

Report = Callable[[ControlMachine, float], Actions]


def _on_level(watch: int, level: frozenset[int], acked: bool, machine: ControlMachine, now: float) -> Actions:
    return machine.on_replicas_caught_up(watch, level, now, acked=acked)


class Replications:
    """Those of all nodes. `report` tells a node's machine what happened, in a turn of its own."""

    def __init__(self, nodes: Sequence[Node], report: Callable[[Node, Report], None], *, strict: bool) -> None:
        self._nodes, self._report, self._strict = nodes, report, strict

    def perform(self, node: Node, action: Action) -> None:
        match action:
            case Follow():
                assert node.lock in {None, "sidecar"}, "OneWriter: the broker still has the lock"
                node.lock, node.replicating = "sidecar", action
                self._join(node, action)
            case BeginEpoch():
                assert node.lock == "broker", "an epoch begins where the broker holds the lock"
                error = node.begin_fails
                if error is None:
                    assert action.epoch >= node.epochs[-1]
                    node.epochs.append(action.epoch)
                    node.replicating = action
                self._report(node, lambda machine, now: machine.on_begun(action.epoch, error, now))
                for other in self._nodes:
                    if isinstance(other.replicating, Follow):
                        self._join(other, other.replicating)
            case StopReplication():
                if node.lock == "sidecar":
                    node.lock = None
                node.replicating = node.watched = None
                self._report(node, lambda machine, now: machine.on_replication_stopped(now))
                self.check()
            case AcceptLoss():
                node.mark = node.max_offset
            case MarkProven():
                node.unproven = None
            case ProposalRefused() | AdoptSyncSet():
                self._propose(node)  # it wants what it wanted
            case WatchCatchUp():
                node.watched = action if action.watch else None
                self.check()
            case _:
                raise AssertionError(action)

    def slave_gone(self) -> None:
        """A slave's connection closed: its master proposes another set."""
        for master in self._nodes:
            if isinstance(master.replicating, BeginEpoch):
                self._propose(master)

    def check(self) -> None:
        """Masters that watch get the replicas that have caught up."""
        for master in self._nodes:
            watch, begun = master.watched, master.replicating
            if watch is None or not isinstance(begun, BeginEpoch):
                continue
            slaves = [
                other
                for other in self._nodes
                if isinstance(other.replicating, Follow) and other.replicating.epoch == begun.epoch and not other.hung
            ]
            level = frozenset(slave.broker_id for slave in slaves if not slave.lags)
            acked = not any(slave.lags for slave in slaves)
            self._report(master, partial(_on_level, watch.watch, level, acked))

    def _join(self, node: Node, follow: Follow) -> None:
        """A slave has caught up, if its master has begun the epoch: then that one wants it in the set."""
        for master in self._nodes:
            begun = master.replicating
            if isinstance(begun, BeginEpoch) and begun.epoch == follow.epoch and master is not node:
                node.epochs.append(max(node.epochs[-1], follow.epoch))
                node.max_offset = node.mark = master.max_offset
                self._report(node, lambda machine, now: machine.on_caught_up(now))
                self._propose(master)

    def _propose(self, master: Node) -> None:
        def wanted(machine: ControlMachine, now: float) -> Actions:
            begun = master.replicating
            if not isinstance(begun, BeginEpoch):
                return ()
            members = {
                other.broker_id
                for other in self._nodes
                if isinstance(other.replicating, Follow) and other.replicating.epoch == begun.epoch
            }
            told = machine.on_in_sync(begun.epoch, 1 + len(members), now)
            if self._strict and not members:
                return told  # it drops no member
            epoch = machine.session.group.agreed.sync_state_set_epoch
            wish = SyncStateSet(sync_state_set=frozenset({master.broker_id, *members}), sync_state_set_epoch=epoch)
            return (*told, *machine.on_proposal(wish, now))

        self._report(master, wanted)
