"""The control machine's configuration: names, controllers, timing."""

import msgspec


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. Those with a Java name have its meaning."""

    lease: float = 2.0
    """brokerLeaseTimeoutMs: shorter than the controllers' brokerSuspectTimeoutMs (3 s)."""
    heartbeat: float = 0.5
    """The smaller of brokerHeartbeatInterval and a quarter of the lease."""
    poll: float = 5.0
    """syncBrokerMetadataPeriod: how often a slave asks getReplicaInfo, in case a controllers' notice was lost. A master
    asks with each heartbeat."""
    search: float = 1.0
    """How long a slave that lost its master asks often, every `search_every`, which replica is master."""
    search_every: float = 0.02
    hint_every: float = 0.1
    """The shortest time between two requests caused by notices (1008), which any peer can send."""
    patience: float = 0.5
    """A leading controller that has not answered for this long may hang: the others are asked which one leads."""
    retry: float = 0.1
    """First pause before a refused request is repeated; doubled up to `retry_most`."""
    retry_most: float = 2.0
    find: float = 0.1
    """Between two rounds of requests for the leading controller."""
    unfollowed: float = 15.0
    """haMaxTimeSlaveNotCatchup: how long a strict master waits until it asks for another master, without followers, or
    while a replica is away of which the controllers cannot say whether it is a member."""
    store_retry: float = 1.0
    """Until the next attempt to write a file that could not be written."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """One replica. Its address comes from the broker."""

    cluster_name: str
    broker_name: str
    controllers: tuple[str, ...]
    """All of them, `host:port`."""
    timing: Timing = Timing()
    relaxed: bool = False
    """durability=relaxed: it acknowledges alone while its lease lasts, so its heartbeats announce the lease."""
    fixed_id: int | None = None
    """enableControllerMode=false: the configured brokerId, 0 for the master; then there are no controllers."""
    learner: bool = False
    """asyncLearner: it copies the log, requests no election, and its heartbeats say so."""
