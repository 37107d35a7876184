"""One broker in the heartbeat table: its name, its connection and its last report."""

import msgspec

from rocketmq_formats.remoting.controller import (
    MAX_ELECTION_PRIORITY,
    NEW_LEADER_WAITS_MS,
    BrokerHeartbeatRequestHeader,
)

DEFAULT_DECLARED_TIMEOUT = 10.0
"""Seconds; what a heartbeat without heartbeatTimeoutMills stands for."""
_MAX_TIMEOUT = 60.0
"""Of what brokers declare: one heartbeat must not keep a broker alive, and its group without election, for long."""
_MAX_LEASE = NEW_LEADER_WAITS_MS / 1000
_ENOUGH_SAMPLES = 2  # of two the longer counts


class BrokerKey(msgspec.Struct, frozen=True, order=True):
    """A broker as it names itself in heartbeats; it need not be registered."""

    cluster_name: str
    broker_name: str
    broker_id: int


class Origin(msgspec.Struct, frozen=True):
    """The source of a request in a broker's name: IP addresses as text, equal if they are the same host's."""

    host: str = ""
    """Of the connection."""
    home: str = ""
    """Of the broker's registered address; empty if there is no such address, or it is a name."""

    @property
    def at_home(self) -> bool:
        """It comes from where the broker is registered."""
        return self.home != "" and self.host == self.home


UNKNOWN = Origin()


class Rival(msgspec.Struct, frozen=True):
    """The last heartbeat over another connection in a broker's name."""

    received_at: float
    request: BrokerHeartbeatRequestHeader
    host: str


class BrokerEntry:
    """One broker's state. Read by views and metrics, written by `HeartbeatTable` only."""

    __slots__ = (
        "address",
        "alive",
        "confirm_offset",
        "connection_id",
        "declared_timeout",
        "election_priority",
        "epoch",
        "home",
        "host",
        "intervals",
        "key",
        "last_heartbeat",
        "last_request",
        "learner",
        "lease",
        "limit",
        "max_offset",
        "rivals",
        "strict",
        "takes_leases",
        "unproven",
    )

    def __init__(self, key: BrokerKey) -> None:
        self.key = key
        self.address = ""
        self.alive = False
        self.home = ""
        """The host that was registered, if its connection, or its last one, comes from there."""
        self.host = ""
        """The host that its connection, or its last one, comes from."""
        self.connection_id: int | None = None
        self.rivals: dict[int, Rival] = {}
        """Last heartbeats over other connections in its name."""
        self.last_request: BrokerHeartbeatRequestHeader | None = None
        """Its last heartbeat."""
        self.declared_timeout = DEFAULT_DECLARED_TIMEOUT
        self.limit = DEFAULT_DECLARED_TIMEOUT
        self.lease = 0.0
        """Seconds after a heartbeat in which it may acknowledge alone."""
        self.takes_leases: bool | None = None
        """Whether it has, or as master would have, a lease; None before its first heartbeat."""
        self.last_heartbeat = 0.0
        self.intervals: tuple[float, ...] = ()
        self.epoch = -1
        self.max_offset = -1
        self.confirm_offset = -1
        self.election_priority = MAX_ELECTION_PRIORITY
        self.strict = False
        """As master it acknowledges only what every member of the SyncStateSet has."""
        self.unproven = False
        """Its log may lack what it acknowledged."""
        self.learner = False
        """It is never elected."""

    @property
    def interval(self) -> float | None:
        """Median of the last intervals between heartbeats in seconds; None while too few were seen."""
        if len(self.intervals) < _ENOUGH_SAMPLES:
            return None
        return sorted(self.intervals)[len(self.intervals) // 2]

    def take_report(self, request: BrokerHeartbeatRequestHeader, *, leased: float) -> None:
        """Take over what its heartbeat says. `leased`: seconds for which a lease given over another connection still
        lasts: only that connection can end it early."""
        self.last_request = request
        if self.key.cluster_name != request.cluster_name:
            self.key = BrokerKey(request.cluster_name, self.key.broker_name, self.key.broker_id)
        self.address = request.broker_addr
        if request.epoch is not None:
            self.epoch = request.epoch
        if request.max_offset is not None:
            self.max_offset = request.max_offset
        if request.confirm_offset is not None:
            self.confirm_offset = request.confirm_offset
        if request.election_priority is not None:
            self.election_priority = request.election_priority
        declared = request.heartbeat_timeout_mills
        self.declared_timeout = (
            DEFAULT_DECLARED_TIMEOUT if declared is None else min(max(declared, 0) / 1000, _MAX_TIMEOUT)
        )
        lease = request.write_lease_millis
        self.lease = max(leased, 0.0 if lease is None else min(max(lease, 0) / 1000, _MAX_LEASE))
        self.takes_leases = lease is not None or self.lease > 0
        self.strict = request.strict_durability is True
        self.unproven = request.unproven is True
        self.learner = request.is_learner is True

    def forget_report(self) -> None:
        """Its report of its log is void. What keeps it out of elections stays until its next heartbeat."""
        self.epoch = self.max_offset = self.confirm_offset = -1
        self.strict = False
