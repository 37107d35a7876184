"""What the control machine is told at its start: names, controllers, timing."""

import msgspec


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. Those with a Java name have its meaning."""

    lease: float = 2.0
    """brokerLeaseTimeoutMs: shorter than the controllers' brokerSuspectTimeoutMs (3 s)."""
    heartbeat: float = 0.5
    """The smaller of brokerHeartbeatInterval and a quarter of the lease."""
    poll: float = 5.0
    """syncBrokerMetadataPeriod: getReplicaInfo of a slave, the net below the controllers' notices. A master asks with
    each heartbeat."""
    look: float = 1.0
    """How long a slave that lost its master asks often who is master now."""
    look_every: float = 0.02
    patience: float = 0.5
    """A leading controller that has not answered for so long may hang: the others are asked who leads."""
    retry: float = 0.1
    """First pause before a question is asked again that was refused; doubled up to `retry_most`."""
    retry_most: float = 2.0
    find: float = 0.1
    """Between two rounds of looking for the leading controller."""
    store_retry: float = 1.0
    """Until a file that could not be written is tried again."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """One replica. Its address comes from the broker."""

    cluster_name: str
    broker_name: str
    controllers: tuple[str, ...]
    """All of them, `host:port`."""
    timing: Timing = Timing()
    relaxed: bool = False
    """durability=relaxed: it acknowledges alone while its lease lasts, so the controllers have to know of it."""
