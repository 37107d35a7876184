"""What one agent is told at its start, and its timing."""

import msgspec


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. Those with a Java name have Java's default."""

    heartbeat: float = 1.0
    """brokerHeartbeatInterval."""
    poll: float = 5.0
    """syncBrokerMetadataPeriod: getReplicaInfo, as the net below the controllers' notices."""
    retry: float = 0.2
    """Until a question that was not answered as hoped is asked again; Java waits up to 5 s."""
    report: float = 0.3
    """Between a slave's reports to its master."""
    slave_silent: float = 2.0
    """A slave that has not reported for so long leaves the SyncStateSet."""
    stall: float = 1.0
    """An agent that did not run for so long cannot know whether it still is master: it asks before it answers."""
    heartbeat_timeout: float = 10.0
    """controllerHeartBeatTimeoutMills, as told to the controllers."""


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One agent. `address` is where it listens, `controllers` are all of them."""

    cluster_name: str
    broker_name: str
    address: str
    controllers: tuple[str, ...]
    timing: Timing = Timing()
