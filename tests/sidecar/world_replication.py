"""Replication in the world, without a byte: who holds the writer lock, who follows whom, which set a master wants."""

from collections.abc import Callable, Sequence
from functools import partial

from rocketmq_formats.remoting.controller import SyncStateSet
from rocketmq_sidecar.domain.actions import (
    Action,
    Actions,
    Adopt,
    Begin,
    Follow,
    Forgive,
    SetRefused,
    StopReplication,
    WatchLevel,
)
from rocketmq_sidecar.domain.machine import ControlMachine
from tests.sidecar.world_node import Node

Report = Callable[[ControlMachine, float], Actions]


def _on_level(watch: int, level: frozenset[int], acked: bool, machine: ControlMachine, now: float) -> Actions:
    return machine.on_level(watch, level, now, acked=acked)


class Replications:
    """Those of all nodes. `report` tells a node's machine what happened, in a turn of its own."""

    def __init__(self, nodes: Sequence[Node], report: Callable[[Node, Report], None]) -> None:
        self._nodes, self._report = nodes, report

    def perform(self, node: Node, action: Action) -> None:
        match action:
            case Follow():
                assert node.lock in {None, "sidecar"}, "OneWriter: the broker still has the lock"
                node.lock, node.replicating = "sidecar", action
                self._join(node, action)
            case Begin():
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
                self.look()
            case Forgive():
                node.mark = node.max_offset
            case SetRefused() | Adopt():
                self._wish(node)  # it wants what it wanted
            case WatchLevel():
                node.watched = action if action.watch else None
                self.look()
            case _:
                raise AssertionError(action)

    def slave_gone(self) -> None:
        """A slave's connection closed: its master, whoever that is, wants another set."""
        for master in self._nodes:
            if isinstance(master.replicating, Begin):
                self._wish(master)

    def look(self) -> None:
        """Masters that watch are told who has everything."""
        for master in self._nodes:
            watch, begun = master.watched, master.replicating
            if watch is None or not isinstance(begun, Begin):
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
            if isinstance(begun, Begin) and begun.epoch == follow.epoch and master is not node:
                node.epochs.append(max(node.epochs[-1], follow.epoch))
                node.max_offset = node.mark = master.max_offset
                self._wish(master)

    def _wish(self, master: Node) -> None:
        def wanted(machine: ControlMachine, now: float) -> Actions:
            begun = master.replicating
            if not isinstance(begun, Begin):
                return ()
            members = {
                other.broker_id
                for other in self._nodes
                if isinstance(other.replicating, Follow) and other.replicating.epoch == begun.epoch
            }
            epoch = machine.steward.mandate.agreed.sync_state_set_epoch
            wish = SyncStateSet(sync_state_set=frozenset({master.broker_id, *members}), sync_state_set_epoch=epoch)
            return machine.on_sync_set_wanted(wish, now)

        self._report(master, wanted)
