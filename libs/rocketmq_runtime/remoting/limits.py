"""Bounds of what strangers can use of one remoting server."""

from dataclasses import dataclass

from rocketmq_settings.declare import CONNECTIONS


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    """Of one server; a peer that exceeds a limit is closed, and the others are not."""

    max_connections: int = CONNECTIONS
    max_received_bytes: int = 256 * 1024 * 1024
    """Bytes of requests over all connections that are not handled: half received, or behind others. Above it those are
    closed that hold the most for the longest time. A `ServerMemory` given to several servers goes before it."""
    max_unsent_total: int = 256 * 1024 * 1024
    """Bytes written over all connections that the peers have not read; above it the same happens."""
    max_in_flight: int = 4096
    """Unanswered requests of one connection, `HELD` ones not counted; above it the connection is not read until answers
    left."""
    max_unsent_bytes: int = 64 * 1024 * 1024
    """Bytes written for one peer that it has not taken; above it the connection is closed. A peer that does not read
    is not read either, so only answers already promised and pushes can come so far."""
    frame_seconds: float = 60.0
    """A frame that was begun has to be complete after this time."""
    idle_seconds: float = 120.0
    """Java closes a channel without traffic after 120 s (rocketmq-all-5.3.3: NettyServerConfig.java)."""
    linger_seconds: float = 2.0
    """How long a closing connection may take to deliver what was written; then it is cut off."""
