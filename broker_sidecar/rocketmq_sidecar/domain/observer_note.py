"""What the observing sidecar remembers of its replica, as a value. Pure; `observer.note` keeps it on disk."""

import msgspec

from rocketmq_formats.broker_identity import BrokerIdentity


class Note(msgspec.Struct, frozen=True, rename="camel"):
    """Everything remembered."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: int = 0
    """0: none seen yet."""
    broker_permission: int | None = None
    """What the broker's brokerPermission was before the fence, to be put back; None: not known."""

    @property
    def identity(self) -> BrokerIdentity | None:
        return BrokerIdentity(self.cluster_name, self.broker_name, self.broker_id) if self.broker_id else None
