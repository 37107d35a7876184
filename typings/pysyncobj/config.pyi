class FAIL_REASON:
    SUCCESS: int
    QUEUE_FULL: int
    MISSING_LEADER: int
    DISCARDED: int
    NOT_LEADER: int
    LEADER_CHANGED: int
    REQUEST_DENIED: int
    UNKNOWN_OUTCOME: int

class SyncObjConf:
    def __init__(
        self,
        *,
        autoTick: bool = ...,
        useFork: bool = ...,
        dynamicMembershipChange: bool = ...,
        appendEntriesUseBatch: bool = ...,
        appendEntriesPeriod: float = ...,
        appendEntriesBatchSizeBytes: int = ...,
        commandsQueueSize: int = ...,
        commandsWaitLeader: bool = ...,
        raftMinTimeout: float = ...,
        raftMaxTimeout: float = ...,
        leaderFallbackTimeout: float = ...,
        connectionTimeout: float = ...,
    ) -> None: ...
