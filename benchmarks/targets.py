"""What we promise of each figure: which way is better, and how ours compares with Java's or with a fixed bound."""

import msgspec


class Target(msgspec.Struct, frozen=True):
    """Rates have to be at least, times and memory at most: `ratio` of ours to Java's, `bound` of ours alone."""

    what: str
    unit: str
    more_is_better: bool
    ratio: float | None = None
    bound: float | None = None
    figures: tuple[str, str] | None = None
    """Of ours and of Java's, where they are measured under other names than this row's."""

    def met(self, ours: float, java: float | None) -> bool:
        """Whether the median of ours keeps what is promised."""
        wanted = [] if self.bound is None else [self.bound]
        if self.ratio is not None and java is not None:
            wanted.append(self.ratio * java)
        return all(ours >= limit if self.more_is_better else ours <= limit for limit in wanted)


IN_FLIGHT = (1, 16, 64)


def _sends(name: str, what: str, ratio: float, *, one_client: bool) -> dict[str, Target]:
    """Each engine with its own client, as its users run it; then both with our client, both with Java's
    (promised too, if `one_client`)."""
    least = ratio if one_client else None
    rows = {}
    for count in IN_FLIGHT:
        ours, java = f"sends_{name}_{count}", f"sends_{name}_java_client_{count}"
        rows[f"sends_{name}_own_client_{count}"] = Target(
            f"{what}, {count} in flight, each with its own client", "/s", True, ratio=ratio, figures=(ours, java)
        )
        rows[ours] = Target("the same, both with our client", "/s", True, ratio=least)
        rows[java] = Target("the same, both with Java's client", "/s", True, ratio=least)
    return rows


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
    **_sends("all", "sends acknowledged by all 3 replicas", 15.0, one_client=True),
    # Here a client takes about as much of the machine as all else together.
    **_sends("master", "sends acknowledged by the master alone", 3.0, one_client=False),
    "fetch_mb_per_second": Target("new slave fetching 900 MB, from first to last byte", "MB/s", True, ratio=3.0),
    "fetch_floor": Target("for comparison: writing 900 MB into a new file here", "MB/s", True),
    "fetch_all": Target("the same, from process start until it says it has all", "s", False, bound=3.0),
    "fetch_in_sync": Target("the same, until it is in the SyncStateSet", "s", False),
    "gap_killed": Target("master killed: longest time without an acknowledged send", "s", False, bound=0.3),
    "gap_hung": Target("master hung: longest time without an acknowledged send", "s", False, bound=3.0),
    "gap_lost": Target("of these sends, acknowledged and lost", "", False, bound=0.0),
    "acting_killed": Target(
        "no quorum and master killed, until a consumer reads from the acting master", "s", False, bound=1.0
    ),
    "acting_hung": Target("no quorum and master hung, until the same", "s", False, bound=13.0),
    "recovery": Target(
        "4 GB (4 KiB each) and kill -9, from process start until it takes and gives messages", "s", False, ratio=1.0
    ),
    "pulled_per_second": Target("1 KiB messages pulled, 8 pulls of 32 in flight", "/s", True, ratio=1.0),
    "read_per_second": Target("1 KiB messages read with our client", "/s", True, ratio=1.0),
    "operator_reconciled": Target("300 BrokerGroups made at once, until all are reconciled", "s", False, bound=60.0),
    "operator_idle_core": Target("the operator with 300 idle groups, of a core", "%", False, bound=2.0),
    "operator_idle_calls": Target("its API calls per idle group and minute", "", False, bound=1.0),
    "operator_memory": Target("its memory, resident", "MiB", False),
    "operator_idle_growth": Target("what that grew by in a quiet minute", "MiB", False, bound=2.0),
    "verify_start": Target("rocketmq-verify: Spark started and warm, local[2]", "s", False),
    "verify_first": Target("of these, its first query, over nothing", "s", False),
    "verify_scan": Target("then: 3 logs of 1 GiB digested and compared in chunks of 1 MiB", "s", False, bound=2.0),
    "verify_plain": Target("for comparison: xxh3 of the same files, one process, one after the other", "s", False),
    "verify_of_plain": Target("digests of all chunks in one process, as a multiple of that", "x", False, bound=2.0),
    "verify_local": Target("the same by hand without Spark, from the start of the process", "s", False, bound=2.0),
    "verify_local_of_plain": Target(
        "its CPU seconds, as a multiple of a process that hashes these files", "x", False, bound=1.5
    ),
    "verify_growth": Target("logs of 20 GiB instead of 1: seconds per GiB, as a multiple", "x", False, bound=1.2),
    "verify_structure": Target("structural check of 1 KiB messages, one process", "MB/s", True, bound=400.0),
    "verify_structure_spark": Target("the same as a job of Spark with 2 tasks", "MB/s", True),
    "verify_queues": Target("consume queues of 3 replicas against 1 GiB of log", "s", False),
    "verify_sidecar_mb_per_second": Target("digested by 3 sidecars while sends go on", "MB/s", True),
    "verify_sends_alone": Target("sends to such a group, 16 in flight, nobody reads", "/s", True),
    "verify_sends_beside": Target("the same while its sidecars digest its log", "/s", True),
    "verify_sends_slower": Target("what that costs them", "%", False, bound=5.0),
    "verify_travelled": Target("of the bytes compared through sidecars, travelled", "%", False, bound=0.1),
}
