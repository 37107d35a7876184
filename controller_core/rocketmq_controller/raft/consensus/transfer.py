"""Leadership transfer: wait until the target holds everything, stop sending, send it TimeoutNow.

A layer of `RaftMachine`, below the commands: none is taken until it ends.
"""

import msgspec
from pysyncobj.node import Node

from rocketmq_controller.raft.consensus.pysyncobj_adapter import LEADER
from rocketmq_controller.raft.consensus.snapshots import Snapshots
from rocketmq_controller.raft.errors import NotLeaderError, TransferError
from rocketmq_controller.raft.network import messages


class Transfer(msgspec.Struct):
    """A hand-over of leadership on its way."""

    target: Node
    give_up_at: float
    """When to stop waiting: for the target to catch up, then for it to be elected."""
    sent: bool = False


class Transfers(Snapshots):
    behind = True
    """Work is left that no message or timer will trigger: the next tick is due now."""
    _transfer: Transfer | None = None

    def transfer(self, target_id: str | None) -> None:
        """Begin to hand leadership to `target_id`, or to the member that holds most.

        Raises:
            NotLeaderError, TransferError: nothing was begun.
        """
        self.now = self.clock()
        if self.state != LEADER:
            raise NotLeaderError(self.leader.id if self.leader is not None else None)
        if self._transfer is not None:
            raise TransferError(f"leadership is being handed to {self._transfer.target} already")
        able = [node for node in self.peers if node in self.connected and node in self.counting]
        candidates = [node for node in able if target_id in (None, node.id)]
        if not candidates:
            raise TransferError(
                f"{target_id} is not connected or not caught up" if target_id else "no other member is connected"
            )
        target = max(candidates, key=lambda node: (self.match_index[node], node.id))
        self._transfer = Transfer(target, self.now + self.long_wait())
        self.behind = True

    @property
    def transferring(self) -> bool:
        return self._transfer is not None

    def drive_transfer(self) -> None:
        """The next step, if it is time for one."""
        transfer = self._transfer
        if transfer is None:
            return
        if transfer.sent:
            if self.now >= transfer.give_up_at:
                self._transfer, self.muted, self.behind = None, False, True
        elif self.now >= transfer.give_up_at or transfer.target not in self.connected:
            self._transfer = None
        elif self.match_index[transfer.target] == self.last_index == self.last_applied:
            # From here to its end nothing is sent, so that no other follower gives us a new promise.
            self.send(transfer.target, messages.TimeoutNow(self.term, self.give_up_lease()))
            self.muted = transfer.sent = True
            transfer.give_up_at = self.now + 0.75 * self.asking

    def end_transfer(self) -> None:
        """Leadership is lost, which was the aim or not."""
        self._transfer, self.muted = None, False
