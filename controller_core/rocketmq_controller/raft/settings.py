"""Settings of one Raft member: who the members are, where state lives, and the clockwork, checked as a whole.

The timings hang together (see `validate_timings`); the defaults let another member commit within one second of a
leader's death. All times are seconds.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from rocketmq_controller.raft.errors import RaftSettingsError

MIN_SECRET_BYTES = 16
MAX_ID_BYTES = 100
"""Of a member's id: two of them have to fit one handshake message."""


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """The machine's clockwork. Safety rests on `lease` < `election_min` only; the rest is how soon things happen."""

    heartbeat: float = 0.1
    """How often a leader with nothing to say shows that it lives."""
    election_min: float = 0.4
    """How long a member that heard the leader refuses to vote for another: the promise that the leader's lease rests
    on."""
    election_max: float = 0.7
    """Upper end of the random silence after which a member stands for election, and how long a leader goes on trying to
    reach a majority before it steps down."""
    lease: float = 0.35
    """How long a leader believes in itself after a majority confirmed it, counted from when it asked. The distance to
    `election_min` covers clocks that run at different speed: 12 % with the defaults."""
    gone_min: float = 0.02
    """A follower whose connection the leader closed (its process ended) stands for election after
    gone_min..gone_max."""
    gone_max: float = 0.15


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what a member holds in memory and sends at once."""

    max_pending: int = 20_000
    """Commands proposed and not committed yet; more are refused (OverloadedError)."""
    max_command_bytes: int = 4 * 1024 * 1024
    batch_bytes: int = 1024 * 1024
    """Commands of one Append; a single larger command travels alone."""
    batch_entries: int = 4096
    window_batches: int = 16
    """Appends under way to one follower before it has acknowledged any of them."""
    apply_batch: int = 5000
    """Commands applied in one turn of the event loop; the rest follows in the next turns."""
    snapshot_chunk_bytes: int = 1024 * 1024
    max_snapshot_bytes: int = 1024 * 1024 * 1024
    compact_after: int = 10_000
    """Entries applied since the last snapshot after which the next is written and the log cut."""
    keep_after_compaction: int = 1000
    """Entries kept before the snapshot, so that a member that was away for a moment needs no snapshot."""


class RaftSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All that `Replica` needs to know."""

    self_id: str
    peers: Mapping[str, tuple[str, int]]
    """Every member, oneself included: id -> (host, port). Host names are resolved anew at each connection attempt."""
    secret: bytes
    """Shared by all members; at least 16 bytes."""
    store_path: Path
    """Folder of journal, vote and snapshot, owned by this member alone."""
    bind_host: str = ""
    """Address to listen on; empty: all."""
    bind_port: int = 0
    """0: the port that `peers` gives for this member."""
    timings: Timings = Timings()
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if self.self_id not in self.peers:
            raise RaftSettingsError(f"self_id {self.self_id!r} is not among the members {', '.join(self.peers)}")
        for member in self.peers:
            if not 0 < len(member.encode()) <= MAX_ID_BYTES:
                raise RaftSettingsError(f"member id {member!r}: 1 to {MAX_ID_BYTES} bytes are allowed")
        if len(self.secret) < MIN_SECRET_BYTES:
            raise RaftSettingsError(
                f"the Raft secret has {len(self.secret)} bytes, at least {MIN_SECRET_BYTES} are needed: "
                "make one with `openssl rand -hex 32` and give the same file to every member"
            )
        validate_timings(self.timings)
        validate_limits(self.limits)

    @property
    def others(self) -> tuple[str, ...]:
        """The other members' ids, sorted."""
        return tuple(sorted(member for member in self.peers if member != self.self_id))


def validate_timings(timings: Timings) -> None:
    """Refuse a clockwork that would depose good leaders or let two lead.

    Raises:
        RaftSettingsError: says which value is wrong against which other.
    """
    for name in timings.__struct_fields__:
        if not 0 < getattr(timings, name) <= 3600:
            raise RaftSettingsError(f"{name}={getattr(timings, name)} is not within 0 to 3600 seconds")
    if timings.election_min <= 3 * timings.heartbeat:
        raise RaftSettingsError(
            f"election_min={timings.election_min} must be more than three times heartbeat={timings.heartbeat}: "
            "otherwise one late heartbeat deposes a good leader"
        )
    if timings.election_max <= timings.election_min:
        raise RaftSettingsError(
            f"election_max={timings.election_max} must be more than election_min={timings.election_min}: "
            "members that stand at the same moment split the votes"
        )
    if timings.lease > 0.95 * timings.election_min:
        raise RaftSettingsError(
            f"lease={timings.lease} must be at most 95 % of election_min={timings.election_min}: "
            "otherwise an old leader may answer reads when another already leads"
        )
    if timings.lease <= 2 * timings.heartbeat:
        raise RaftSettingsError(
            f"lease={timings.lease} must be more than twice heartbeat={timings.heartbeat}: "
            "otherwise it ends between two heartbeats"
        )
    if timings.gone_max < timings.gone_min:
        raise RaftSettingsError(f"gone_max={timings.gone_max} must not be less than gone_min={timings.gone_min}")


def validate_limits(limits: Limits) -> None:
    """Refuse bounds that are not positive or that cannot be met together.

    Raises:
        RaftSettingsError: says which.
    """
    for name in limits.__struct_fields__:
        if getattr(limits, name) < (0 if name == "keep_after_compaction" else 1):
            raise RaftSettingsError(f"{name}={getattr(limits, name)} must be positive")
    if limits.max_command_bytes > 16 * 1024 * 1024 or limits.batch_bytes > 16 * 1024 * 1024:
        raise RaftSettingsError(
            "max_command_bytes and batch_bytes must be at most 16 MiB: an Append has to fit a frame of 32 MiB"
        )
    if limits.batch_entries > 65_536:
        raise RaftSettingsError("batch_entries must be at most 65536, the bound of one Append")
    if limits.snapshot_chunk_bytes > 16 * 1024 * 1024:
        raise RaftSettingsError("snapshot_chunk_bytes must be at most 16 MiB: a chunk has to fit a frame of 32 MiB")
