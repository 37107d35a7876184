"""Settings of one Raft member: who the members are, where state lives, and the clockwork, checked as a whole.

The timings hang together (see `validate_timings`); with the defaults, on a machine that is not overloaded, another
member commits within 0.2 seconds of a leader's death. All times are seconds.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from rocketmq_controller.raft.configuration import MAX_ID_BYTES, MAX_MEMBERS
from rocketmq_controller.raft.errors import RaftSettingsError

MIN_SECRET_BYTES = 16


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """The machine's clockwork. Safety rests on `lease_share` < 1 only; the rest is how soon things happen."""

    heartbeat: float = 0.03
    """How often an idle leader sends a heartbeat."""
    election_min: float = 0.12
    """The shortest promise that a leader asks for: to vote for no other member for this long after hearing it. It asks
    for more while members are stalled (see timeouts). A follower promises its own `election_min` if that is longer."""
    election_limit: float = 3.0
    """The most that a leader asks for, unless `election_min` is more."""
    step_down: float = 0.7
    """How long a leader tries to reach a majority before it steps down, at least."""
    lease_share: float = 0.875
    """The part of a follower's promise for which the leader counts on it, from when it asked. The rest covers clocks
    that run at different speed."""


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
    promote_lag: int = 1000
    """Entries that a learner may be behind when it becomes a voter."""
    compact_after: int = 10_000
    """Entries applied since the last snapshot after which the next is written and the log cut."""
    keep_after_compaction: int = 1000
    """Entries kept before the snapshot, so that a member that was away for a moment needs no snapshot."""


class RaftSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All that `Replica` needs to know."""

    self_id: str
    peers: Mapping[str, tuple[str, int]]
    """Every member, this one included: id -> (host, port). Host names are resolved at each connection attempt. The
    members in the log replace these, as soon as it has any."""
    secret: bytes
    """Shared by all members; at least 16 bytes."""
    store_path: Path
    """Folder of journal, vote and snapshot, owned by this member alone."""
    joins: bool = False
    """The quorum exists and takes this member in: a new store never begins a quorum of its own."""
    bind_host: str = ""
    """Address to listen on; empty: all."""
    bind_port: int = 0
    """0: the port that `peers` gives for this member."""
    timings: Timings = Timings()
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if self.self_id not in self.peers:
            raise RaftSettingsError(f"self_id {self.self_id!r} is not among the members {', '.join(self.peers)}")
        if len(self.peers) > MAX_MEMBERS:
            raise RaftSettingsError(f"{len(self.peers)} members are named, at most {MAX_MEMBERS} are allowed")
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
        """The ids of the other members in `peers`, sorted."""
        return tuple(sorted(member for member in self.peers if member != self.self_id))


def validate_timings(timings: Timings) -> None:
    """Refuse a clockwork that would depose good leaders or let two lead.

    Raises:
        RaftSettingsError: the text names the values that contradict each other.
    """
    for name in timings.__struct_fields__:
        if not 0 < getattr(timings, name) <= 3600:
            raise RaftSettingsError(f"{name}={getattr(timings, name)} is not within 0 to 3600 seconds")
    if timings.election_min <= 3 * timings.heartbeat:
        raise RaftSettingsError(
            f"election_min={timings.election_min} must be more than three times heartbeat={timings.heartbeat}: "
            "otherwise one late heartbeat deposes a good leader"
        )
    if timings.step_down <= timings.election_min:
        raise RaftSettingsError(
            f"step_down={timings.step_down} must be more than election_min={timings.election_min}: "
            "otherwise a leader steps down before another member may lead"
        )
    if timings.lease_share > 0.95:
        raise RaftSettingsError(
            f"lease_share={timings.lease_share} must be at most 0.95: "
            "otherwise an old leader may answer reads when another already leads"
        )


def validate_limits(limits: Limits) -> None:
    """Refuse bounds that are not positive or that cannot be met together.

    Raises:
        RaftSettingsError: the text names them.
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
