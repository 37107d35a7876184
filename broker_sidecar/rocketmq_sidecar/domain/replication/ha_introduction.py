"""Both sides of the introduction before replication (`rocketmq_formats.replication.introduction`): slave and master
compare who they are. Pure. An official broker does not name itself, and nothing is compared with it.
"""

from rocketmq_formats.replication.introduction import Introduction, Reception, decode, encode
from rocketmq_sidecar.domain.replication.ha_challenge import SlaveChallenge, State
from rocketmq_sidecar.domain.replication.truncate import TruncationError


class IntroductionRefusedError(TruncationError):
    """What answers at the master's HA address is not the master that this replica follows."""


class SlaveIntroduction:
    """The slave's side of one connection. Send `begin`, feed `receive` until the state is OVER."""

    def __init__(self, ours: Introduction, challenge: SlaveChallenge | None = None) -> None:
        """`challenge`: what comes before it, and seals it."""
        self.state = State.HELLO_AWAITED
        self._ours, self._challenge = ours, challenge
        self._rest = b""

    def begin(self) -> bytes:
        """What to send first."""
        return encode(self._ours, None if self._challenge is None else self._challenge.sealing)

    def receive(self, data: bytes) -> bytes:
        """Nothing is to be sent.

        Raises:
            IntroductionRefusedError: the master is another one.
            FrameError: bytes that are no answer.
        """
        self._rest += data
        found = decode(self._rest, Reception, None if self._challenge is None else self._challenge.opening)
        if found is not None:
            reception, self._rest = found
            if reception.refused is not None:
                raise IntroductionRefusedError(
                    f"the replica at the master's HA address refuses us: {reception.refused}"
                )
            self.state = State.OVER
        return b""

    def rest(self) -> bytes:
        """What came after the answer."""
        rest, self._rest = self._rest, b""
        return rest


def receive(slave: Introduction, ours: Introduction) -> Reception:
    """The answer of the master `ours`, whose own id is its `broker_id`. Every part that both know is compared."""
    parts = [
        ("brokerClusterName", slave.cluster_name, ours.cluster_name),
        ("brokerName", slave.broker_name, ours.broker_name),
        ("the master's brokerId", slave.master_id, ours.broker_id),
    ]
    if slave.controllers is not None and ours.controllers is not None:
        parts.append(("controllerDLegerGroup of the controllers", slave.controllers, ours.controllers))
    differ = [f"{name} is {theirs} at the slave and {own} here" for name, theirs, own in parts if theirs != own]
    return Reception("; ".join(differ) or None)
