"""What we promise of each figure: which way is better, and how ours compares with Java's or with a fixed bound."""

import msgspec


class Target(msgspec.Struct, frozen=True):
    """Rates have to be at least, times and memory at most: `ratio` of ours to Java's, `bound` of ours alone."""

    what: str
    unit: str
    more_is_better: bool
    ratio: float | None = None
    bound: float | None = None

    def met(self, ours: float, java: float | None) -> bool:
        """Whether the median of ours keeps what is promised."""
        wanted = [] if self.bound is None else [self.bound]
        if self.ratio is not None and java is not None:
            wanted.append(self.ratio * java)
        return all(ours >= limit if self.more_is_better else ours <= limit for limit in wanted)


TARGETS = {
    "alter_per_second": Target("alterSyncStateSet, 300 groups at once", "/s", True, ratio=3.0),
    "alter_median": Target("the same, median latency", "s", False, ratio=0.2),
    "alter_p99": Target("the same, 99th percentile", "s", False),
    "heartbeat_per_second": Target("heartbeats answered", "/s", True, ratio=1.0),
    "replica_info_per_second": Target("getReplicaInfo", "/s", True, ratio=1.0),
    "leader_killed": Target("controller leader killed, until another commits", "s", False, bound=1.0),
    "leader_hung": Target("controller leader hung, until another commits", "s", False, bound=1.0),
    "masters_lost": Target("300 masters lost at once, until every group has a new one", "s", False, ratio=0.5),
    "memory": Target("largest member after 350 groups, resident", "MiB", False, bound=100.0),
    "restart": Target(
        "all members restarted with 100,000 events, until one leads with all applied", "s", False, bound=3.0
    ),
}
