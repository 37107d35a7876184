"""How many connections the process's limit of open files leaves room for. Used by the remoting servers and the port for
probes."""

import resource
from typing import Final

import structlog

log = structlog.get_logger(__name__)

OTHER_FILES: Final = 1024
"""Descriptors that strangers cannot take; half of the limit of open files where that is too low."""


class OpenFiles:
    """What the servers of this process share: its limit of open files. Without descriptors left the process could not
    open its own files, which some can only take for a failing disk."""

    wanted = 0
    """Connections that all listening servers may have by their limits."""
    open = 0
    """Connections that they have."""
    room = 0
    """Connections that the limit of open files leaves room for."""

    @classmethod
    def reserve(cls, connections: int) -> None:
        """Keep room for this number of connections of a port that bounds them itself."""
        cls.wanted += connections
        cls.room = raise_file_limit(cls.wanted)
        cls.open += connections

    @classmethod
    def release(cls, connections: int) -> None:
        """Give room back that was reserved."""
        cls.wanted -= connections
        cls.open -= connections


def raise_file_limit(connections: int) -> int:
    """Lift the soft limit of open files so that `connections` fit, as far as the hard limit allows; how many do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHER_FILES
    target = soft
    if soft != resource.RLIM_INFINITY and soft < wanted:
        target = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        if target < wanted:
            log.warning("open files are limited below max_connections", limit=target, wanted=wanted)
    if target == resource.RLIM_INFINITY or target >= wanted:
        return connections
    return target - min(OTHER_FILES, target // 2)
