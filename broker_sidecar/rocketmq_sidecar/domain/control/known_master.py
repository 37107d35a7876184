"""Tells the broker of a slave whether its group still has a master, as far as this replica can know: without one the
slave may serve consumers (RIP-32, slave acting master). Pure; part of the control machine.

There is a master as long as a leading controller names one, whatever name servers think, or this replica is connected
to it and hears it. A master that hangs keeps its connections; its first byte after that ends the silence, in the turn
in which it is read. The controllers name a master that died until they have noticed, and that is right: they are about
to elect another.
"""

from rocketmq_formats.replica_link import MasterKnown
from rocketmq_sidecar.domain.actions import Actions, LogLine, SendToBroker
from rocketmq_sidecar.domain.control.role import BeSlave


class KnownMaster:
    def __init__(self) -> None:
        self._connected, self._heard = False, True
        self._of: BeSlave | None = None
        self._told = True
        """A broker that begins to follow expects a master."""

    def on_caught_up(self) -> None:
        """The master is connected, and this replica has its log."""
        self._connected = self._heard = True

    def on_master_lost(self) -> None:
        """The connection to the master broke."""
        self._connected = False

    def on_heard(self, *, heard: bool) -> None:
        """The connected master has been silent for too long to count as alive, or is heard again."""
        self._heard = heard

    def step(self, following: BeSlave | None, *, named: bool, controllers: bool) -> Actions:
        """What to tell the broker now. `following`: whom this replica follows. `named`: by the newest answer of a
        controller there is a master. `controllers`: one leads and answers."""
        if following != self._of:
            if following is None or self._of is None or following.master_broker_id != self._of.master_broker_id:
                self._connected = False  # to the same master the connection stays, also in a later epoch
            self._of, self._told = following, True
        known = named and (controllers or (self._connected and self._heard))
        if following is None or known == self._told:
            return ()
        self._told = known
        event = "the group has a master again" if known else "no master: neither controllers nor replication know one"
        return (LogLine(event, {"last_master": following.master_address}), SendToBroker(MasterKnown(known)))
