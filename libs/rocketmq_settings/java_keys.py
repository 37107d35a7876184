"""A verdict on every key of RocketMQ 5.3.3's configuration classes: honoured, accepted without meaning, or refused.

A Java file works here as it lies on a user's disk, so each of its keys does what it does in Java, or is explained.
Honoured are the keys that a process declares; what remains of Java's is below, with the reason. docs/java-keys.md is
made from it (hack/configuration.py), and a test compares it with the official classes (tests/golden/keys).
Source: rocketmq-all-5.3.3: BrokerConfig.java, MessageStoreConfig.java, NettyServerConfig.java, NettyClientConfig.java,
NamesrvConfig.java, ControllerConfig.java, AuthConfig.java.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from rocketmq_formats.security_keys import IGNORE_SECURITY_KEYS, SECURITY_KEYS
from rocketmq_settings.broker import BrokerKeys
from rocketmq_settings.controller import ControllerKeys
from rocketmq_settings.declare import OTHER_NAMES, Settings
from rocketmq_settings.name_server import NameServerKeys
from rocketmq_settings.sidecar import SidecarKeys
from rocketmq_settings.table import Row, rows

PROCESSES: Final[Mapping[str, type[Settings]]] = {
    "broker": BrokerKeys,
    "sidecar": SidecarKeys,
    "controller": ControllerKeys,
    "name server": NameServerKeys,
}
READERS: Final[Mapping[str, tuple[str, ...]]] = {
    "BrokerConfig": ("broker", "sidecar"),
    "MessageStoreConfig": ("broker", "sidecar"),
    "NettyServerConfig": ("broker", "sidecar", "controller", "name server"),
    "NettyClientConfig": ("broker", "sidecar", "controller", "name server"),
    "NamesrvConfig": ("name server",),
    "ControllerConfig": ("controller",),
    "JraftConfig": ("controller",),
    "AuthConfig": ("broker", "sidecar"),
}
"""Java class -> the processes that read a file with its keys."""

ACCEPTED_VALUES: Final[Mapping[str, tuple[str, str]]] = {
    "storeType": ("default", "there is no store in RocksDB: its messages would be missing"),
    "enableDLegerCommitLog": ("false", "there is no store in DLedger's format: its messages would be missing"),
    "messageStorePlugIn": ("", "there are no plug-ins: what a tiered store keeps would be missing"),
    "readOnlyCommitLogStorePaths": ("", "there is one folder: messages in the others would be missing"),
}
"""Key -> its only value besides an empty one, and why the others are refused: they name stores that we do not have."""

_LOOP: Final = "One event loop handles all requests: there are no thread pools with queues in which requests wait."
_NETTY: Final = "The sockets are not Netty's; the system's defaults apply."
_POP: Final = "There is no POP."
_TRANSACTIONS: Final = "There are no transactional messages."
_METRICS: Final = "Metrics are always Prometheus', at metricsPromExporterPort."
_COLD: Final = "Reads of old messages are not held back."
_STATS: Final = "Statistics are always kept, without accounts and charges."
_FILTERS: Final = "Consumers filter by tags only, without bit maps."
_BROADCAST: Final = "Broadcast consumers keep their offsets themselves."
_REGISTRATION: Final = "A registration always has the whole table, without compression."
_NAMES: Final = "namesrvAddr names the name servers; names are resolved at each connect."
_CLIENTS: Final = (
    "Clients are known by their connections and heartbeats, with fixed times; consumers are always notified."
)
_NO_CHANGES: Final = "The configuration is the file's."
_TIMERS: Final = "There are no messages for any point in time, only delay levels."
_COMPACTION: Final = "There are no compacted topics."
_ROCKSDB: Final = "There is no RocksDB; tables are JSON files, queues are files of units."
_DLEDGER: Final = "There is no DLedger commit log: controllers elect the master."
_MAPPING: Final = "Files are written by calls, and are neither locked into memory, warmed nor swapped."
_BUFFERS: Final = "What is in the page cache is sent from there."
_DELETION: Final = "Expired files are deleted one after the other, each at once."
_FLUSH: Final = "Syncs go by time alone: flushIntervalCommitLog, and each second for consume queues."
_DISPATCH: Final = "Consume queues are built in the event loop, in the log's order."
_INDEX: Final = "There is no index of keys: queries by key find nothing."
_QUEUES: Final = "There are plain consume queues only, without extension and without light (LMQ) or batch queues."
_LOCKS: Final = "There is one writer and no lock between threads."
_CHECKSUMS: Final = (
    "Records of both kinds are read, and new ones have checksums of their bodies, always checked at the start."
)
_DELAYS: Final = "Delayed messages are delivered one after the other per level, again until they are stored."
_COPIES: Final = "Replication is the sidecar's, with AutoSwitchHA's protocol."
_AUTH: Final = "There is no authentication and no authorization of clients: keys that switch them on are refused."

_WITHOUT_MEANING: Final[Mapping[str, Mapping[str, str]]] = {
    "BrokerConfig": {
        _LOOP: """ackMessageThreadPoolNums ackThreadPoolQueueCapacity adminBrokerThreadPoolNums
            adminBrokerThreadPoolQueueCapacity asyncSendEnable brokerFastFailureEnable clientManageThreadPoolNums
            clientManagerThreadPoolQueueCapacity consumerManageThreadPoolNums consumerManagerThreadPoolQueueCapacity
            endTransactionPoolQueueCapacity endTransactionThreadPoolNums heartbeatThreadPoolNums
            heartbeatThreadPoolQueueCapacity litePullMessageEnable litePullMessageThreadPoolNums
            litePullThreadPoolQueueCapacity loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity
            processReplyMessageThreadPoolNums pullMessageThreadPoolNums putMessageFutureThreadPoolNums
            putThreadPoolQueueCapacity queryMessageThreadPoolNums queryThreadPoolQueueCapacity recoverConcurrently
            recoverThreadPoolNums replyThreadPoolQueueCapacity sendMessageThreadPoolNums waitTimeMillsInAckQueue
            waitTimeMillsInAdminBrokerQueue waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue
            waitTimeMillsInPullQueue waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue""",
        _STATS: """accountStatsEnable accountStatsPrintZeroValues autoDeleteUnusedStats commercialBaseCount
            commercialSizePerMsg enableDetailStat enableLmqStats maxStatsIdleTimeInMinutes""",
        _POP: """appendAckAsync appendCkAsync clearRetryTopicWhenDeleteTopic defaultMessageRequestMode
            defaultPopShareQueueNum enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag
            enablePopBatchAck enablePopBufferMerge enablePopLog enablePopMessageThreshold enableRetryTopicV2
            enableSkipLongAwaitingAck initPopOffsetByCheckMsgInMem loadBalancePollNameServerInterval maxPopPollingSize
            popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut
            popConsumerFSServiceInit popConsumerKVServiceEnable popConsumerKVServiceInit popConsumerKVServiceLog
            popFromRetryProbability popInflightMessageThreshold popLongPollingForceNotifyInterval popPollingMapSize
            popPollingSize popResponseReturnActualRetryTopic popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead
            retrieveMessageFromPopRetryTopicV1 reviveAckWaitMs reviveInterval reviveMaxSlow reviveQueueNum
            reviveScanTime serverLoadBalancerEnable skipWhenCKRePutReachMaxTimes""",
        _TRANSACTIONS: """rejectTransactionMessage transactionCheckInterval transactionCheckMax
            transactionMetricFlushInterval transactionOpBatchInterval transactionOpMsgMaxSize transactionTimeOut""",
        _COLD: "cgColdReadThreshold coldCtrStrategyEnable globalColdReadThreshold usePIDColdCtrStrategy",
        _METRICS: """metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
            metricLoggingExporterIntervalInMills metricsExporterType metricsGrpcExporterHeader
            metricsGrpcExporterTarget metricsInDelta metricsLabel metricsOtelCardinalityLimit""",
        "Delayed messages cannot be recalled.": "allowRecallWhenBrokerNotWriteable recallMessageEnable",
        _FILTERS: """enableCalcFilterBitMap expectConsumerNumUseFilter filterDataCleanTimeSpan filterSupportRetry
            maxErrorRateOfBloomFilter""",
        _BROADCAST: "broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond enableBroadcastOffsetStore",
        _REGISTRATION: """compressedRegister enableSingleTopicRegister enableSplitRegistration forceRegister
            splitRegistrationSize""",
        _NAMES: """fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer fetchNamesrvAddrInterval
            updateNameServerAddrPeriod""",
        _NO_CHANGES: "brokerConfigPath configBlackList",
        "There is no container of brokers: each is a process.": """cleanOfflineBrokerInterval inBrokerContainer
            isolateLogEnable""",
        _ROCKSDB: "configManagerVersion",
        _CLIENTS: """channelExpiredTimeout enableCreateSysGroup enableFastChannelEventProcess enableRegisterProducer
            notifyConsumerIdsChangedEnable printChannelGroups printChannelGroupsMinNum realTimeNotifyConsumerChange
            rejectPullConsumerEnable subscriptionExpiredTimeout useStaticSubscription""",
        "Consumers that are far behind are served like others.": """consumerFallbehindThreshold
            disableConsumeIfConsumerReadSlowly""",
        _BUFFERS: "enableNetWorkFlowControl highSpeedMode transferMsgByHeap",
        "Tables of offsets are copied whole, without regard to their versions.": """consumerOffsetUpdateVersionStep
            delayOffsetUpdateVersionStep flushConsumerOffsetHistoryInterval""",
        "Backlogs are counted, not estimated.": "estimateAccumulation",
        "The kind of a topic's messages is not checked.": "enableMixedMessageType",
        "Nothing is forwarded to another broker.": "forwardTimeout",
        "Tools can never change topics of the system.": "validateSystemTopicWhenUpdateTopic",
    },
    "MessageStoreConfig": {
        _ROCKSDB: """batchDispatchRequestThreadPoolNums bottomMostCompressionTypeForConsumeQueueStore
            cleanRocksDBDirtyCQIntervalMin enableRocksDBLog memTableFlushIntervalMs realTimePersistRocksDBConfig
            rocksdbCQDoubleWriteEnable rocksdbCompressionType rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold
            statRocksDBCQIntervalSec""",
        _COMPACTION: """compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal
            compactionThreadNum enableCompaction maxOffsetMapSize""",
        _DLEDGER: """dLegerGroup dLegerPeers dLegerSelfId enableBatchPush preferredLeaderId
            storePathDLedgerCommitLog""",
        _TIMERS: """disappearTimeAfterStart mappedFileSizeTimerLog timerColdDataCheckIntervalMs
            timerCongestNumEachSlot timerEnableCheckMetrics timerFlushIntervalMs timerGetMessageThreadNum
            timerInterceptDelayLevel timerMaxDelaySec timerMetricSmallThreshold timerPrecisionMs
            timerProgressLogIntervalMs timerPutMessageThreadNum timerRollWindowSlot timerSkipUnknownError
            timerStopEnqueue timerWheelEnable""",
        _DELAYS: """enableScheduleAsyncDeliver enableScheduleMessageStats flushDelayOffsetInterval
            scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
            timerEnableRetryUntilSuccess""",
        _COLD: """accessMessageInMemoryHotRatio coldDataFlowControlEnable coldDataScanEnable dataReadAheadEnable""",
        _MAPPING: """cleanSwapedMapInterval commitLogForceSwapMapInterval commitLogSwapMapInterval
            commitLogSwapMapReserveFileNum flushLeastPagesWhenWarmMapedFile logicQueueForceSwapMapInterval
            logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum mappedFileSwapEnable
            putConsumeQueueDataByFileChannel warmMapedFileEnable""",
        "The log is always written into mapped files.": """commitCommitLogLeastPages commitCommitLogThoroughInterval
            commitIntervalCommitLog fastFailIfNoBufferInStorePool wakeCommitWhenPutMessage""",
        _FLUSH: """flushCommitLogLeastPages flushCommitLogThoroughInterval flushCommitLogTimed
            flushConsumeQueueLeastPages flushConsumeQueueThoroughInterval wakeFlushWhenPutMessage""",
        _DELETION: """cleanFileForciblyEnable cleanResourceInterval deleteCommitLogFilesInterval
            deleteConsumeQueueFilesInterval deleteFileBatchMax destroyMapedFileIntervalForcibly
            logicalDiskSpaceCleanForciblyThreshold maxBatchDeleteFilesNum redeleteHangedFileInterval
            replicasPerDiskPartition""",
        _DISPATCH: """dispatchCqCacheNum dispatchCqThreads dispatchFromSenderThread duplicationEnable
            enableAsyncReput enableBuildConsumeQueueConcurrently maxRecoveryCommitlogFiles putMsgIndexHightWater
            readUnCommitted recheckReputOffsetFromCq""",
        _INDEX: "defaultQueryMaxNum maxHashSlotNum maxIndexNum maxMsgsNumBatch messageIndexEnable messageIndexSafe",
        _QUEUES: """bitMapLengthConsumeQueueExt correctLogicMinOffsetForceInterval
            correctLogicMinOffsetSleepInterval enableConsumeQueueExt enableLmq enableMultiDispatch
            mappedFileSizeConsumeQueueExt mapperFileSizeBatchConsumeQueue maxLmqConsumeQueueNum
            searchBcqByCacheEnable travelCqFileNumWhenGetMessage""",
        _LOCKS: """debugLockEnable spinLockCollisionRetreatOptimalDegree topicQueueLockNum useABSLock
            useReentrantLockWhenPutMessage""",
        _CHECKSUMS: """checkCRCOnRecover enabledAppendPropCRC forceVerifyPropCRC maxChecksumRange""",
        _COPIES: """haMasterAddress maxSlaveResendLength offsetCheckInSlave syncMasterFlushOffsetWhenStartup""",
        "Offsets of queues that are gone are removed with their topic.": "enableCleanExpiredOffset",
        "Layout and length of a topic's name are decided per message.": "autoMessageVersionOnTopicLen maxTopicLength",
        "Sends wait up to slaveTimeout and syncFlushTimeout.": """maxAsyncPutMessageRequests
            osPageCacheBusyTimeOutMills putMessageTimeout""",
        "A pull reads up to maxTransferCountOnMessageInMemory, and its filter looks no further.": """diskFallRecorded
            maxConsumeQueueScan maxFilterMessageSize pullBatchMaxMessageCount sampleCountThreshold sampleSteps""",
    },
    "NettyServerConfig": {
        _NETTY: """enableShutdownGracefully serverAsyncSemaphoreValue serverCallbackExecutorThreads
            serverChannelMaxIdleTimeSeconds serverNettyWorkerGroupEnable serverOnewaySemaphoreValue
            serverPooledByteBufAllocatorEnable serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize
            serverSocketSndBufSize serverWorkerThreads shutdownWaitTimeSeconds useEpollNativeSelector
            writeBufferHighWaterMark writeBufferLowWaterMark""",
    },
    "NettyClientConfig": {
        _NETTY: """channelNotActiveInterval clientAsyncSemaphoreValue clientCallbackExecutorThreads
            clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientOnewaySemaphoreValue
            clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize clientWorkerThreads
            connectTimeoutMillis disableCallbackExecutor disableNettyWorkerGroup enableReconnectForGoAway
            maxReconnectIntervalTimeSeconds scanAvailableNameSrv writeBufferHighWaterMark writeBufferLowWaterMark""",
        "Connections are made without a proxy.": "socksProxyConfig",
    },
    "NamesrvConfig": {},
    "ControllerConfig": {
        _LOOP: "controllerRequestThreadPoolQueueCapacity controllerThreadPoolNums",
        _METRICS: """metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
            metricLoggingExporterIntervalInMills metricsExporterType metricsGrpcExporterHeader
            metricsGrpcExporterTarget metricsInDelta""",
        "The journal has files of its own size.": "mappedFileSize",
        "There is one kind of quorum; no key of a file sets this one in Java either.": "jraftConfig",
    },
    "JraftConfig": {
        "There is one kind of quorum, not JRaft's.": """jRaftControllerRPCAddr jRaftElectionTimeoutMs jRaftGroupId
            jRaftInitConf jRaftServerId jRaftScanWaitTimeoutMs jRaftSnapshotIntervalSecs""",
    },
    "AuthConfig": {
        _AUTH: """aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond authConfigPath
            authenticationMetadataProvider authenticationProvider authenticationStrategy authenticationWhitelist
            authorizationMetadataProvider authorizationProvider authorizationStrategy authorizationWhitelist
            clusterName configName initAuthenticationUser innerClientAuthenticationCredentials
            statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum
            statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum userCacheExpiredSecond
            userCacheMaxNum userCacheRefreshSecond""",
    },
}

Kind = Literal["honoured", "without meaning", "refused"]


class Verdict(msgspec.Struct, frozen=True):
    """What a key of Java does here."""

    kind: Kind
    text: str
    """A sentence; of an honoured key who honours it."""
    honoured: Row | None = None
    """Our key."""


def verdict(owner: str, key: str) -> Verdict:
    """On a key of one of Java's classes.

    Raises:
        KeyError: no verdict; a test keeps this from happening for the keys of 5.3.3.
    """
    if key in SECURITY_KEYS:
        on = " or ".join(sorted(SECURITY_KEYS[key]))
        return Verdict(
            "refused", f"`{on}`: there is no such protection; with {IGNORE_SECURITY_KEYS} it is passed over."
        )
    if key in ACCEPTED_VALUES:
        only, why = ACCEPTED_VALUES[key]
        return Verdict("refused", f"Other values than {f'`{only}`' if only else 'an empty one'}: {why}.")
    declared = {name: _declared(name, key) for name in READERS[owner]}
    found = {name: row for name, row in declared.items() if row is not None}
    if not found:
        return Verdict("without meaning", _REASONS[owner, key])
    row = next(iter(found.values()))
    if row.without_effect:
        return Verdict("without meaning", row.meaning)
    return Verdict("honoured", ", ".join(found), row)


def reason(key: str) -> str | None:
    """Why a key of Java that no process declares has no meaning here; None if Java has no such key."""
    return next((text for (_, name), text in _REASONS.items() if name == key), None)


def explained() -> frozenset[tuple[str, str]]:
    """Java class and key of all verdicts that are written out here."""
    return frozenset(_REASONS)


def missing_store(values: Mapping[str, str]) -> str | None:
    """The first key of `values` (key -> text) that names a store that we do not have, with the reason."""
    for key, (only, why) in sorted(ACCEPTED_VALUES.items()):
        text = values.get(key, "").strip()
        if text and text.lower() != only:
            return f"{key}={text[:200]}: {why}"
    return None


def _declared(process: str, key: str) -> Row | None:
    return next((row for row in rows(PROCESSES[process]) if row.key in (key, OTHER_NAMES.get(key))), None)


_REASONS: Final[Mapping[tuple[str, str], str]] = {
    (owner, key): text
    for owner, reasons in _WITHOUT_MEANING.items()
    for text, keys in reasons.items()
    for key in keys.split()
}
