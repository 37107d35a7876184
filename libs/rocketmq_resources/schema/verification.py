"""When and how the logs of a group's replicas are compared, and what the last comparison found."""

from typing import Annotated, ClassVar, TypedDict

import msgspec
from msgspec import Meta

from rocketmq_resources.schema.common import Image, StorageClassName, StorageSize
from rocketmq_resources.schema.declare import Rule, checked, field
from rocketmq_resources.schema.kubernetes import SparkResources, Time
from rocketmq_settings.verify import CHUNK_SIZE, CHUNK_SIZE_FORM, CHUNK_SIZES, REREAD_DAYS, Days

_CRON = "[-0-9A-Za-z*,/?]+"
Schedule = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=128,
        pattern=f"^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|{_CRON}( +{_CRON}){{4}})$",
    ),
]


class VerificationResources(msgspec.Struct, frozen=True, rename="camel"):
    """ResourceRequirements of the pods."""

    driver: Annotated[SparkResources, field("Resources of the job's own pod.")] = {}
    executor: Annotated[SparkResources, field("Resources of each executor's pod.")] = {}


class HistoryStorage(msgspec.Struct, frozen=True, rename="camel"):
    """A volume for what verification remembers."""

    size: Annotated[
        StorageSize, field("Size of the volume. May grow where the StorageClass allows it, never shrink.")
    ] = "1Gi"
    storage_class_name: StorageClassName = None


class VerificationHistory(msgspec.Struct, frozen=True, rename="camel"):
    """Where verification remembers: one of the two."""

    RULES: ClassVar = (
        Rule("has(self.path) != has(self.storage)", "set either path or storage"),
        Rule(
            "!has(oldSelf.storage) || !has(self.storage) "
            "|| (has(self.storage.storageClassName) == has(oldSelf.storage.storageClassName) "
            "&& (!has(self.storage.storageClassName) "
            "|| self.storage.storageClassName == oldSelf.storage.storageClassName))",
            "storageClassName cannot change: remove history and delete its PVC first",
            "storage",
        ),
    )

    path: Annotated[
        Annotated[str, Meta(max_length=1024, pattern=r"^[a-z][a-z0-9+.-]*://\S+$")] | None,
        field(
            "A folder of a file system that Spark can write to, with its scheme, for example s3a://bucket/verification."
        ),
    ] = None
    storage: Annotated[
        HistoryStorage | None, field("A volume that the operator creates for the group and deletes with it.")
    ] = None


class Verification(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """When and how the replicas' logs are compared."""

    RULES: ClassVar = (
        Rule(
            "!has(self.maxExecutors) || (self.executors >= 1 && self.maxExecutors >= self.executors)",
            "maxExecutors needs executors to be at least 1, and at most maxExecutors",
            "maxExecutors",
        ),
    )

    schedule: Annotated[
        Schedule,
        field(
            "When messages written since the last comparison, and those that were not read for the longest time, are "
            'compared: a CronJob\'s schedule in UTC, for example "0 * * * *".'
        ),
    ]
    full_schedule: Annotated[
        Schedule | None,
        field('When everything is compared, for example "0 3 * * 0"; absent means never. This is a second CronJob.'),
    ] = None
    suspend: Annotated[bool, field("While true no comparison starts.")] = False
    reread_days: Annotated[
        Days,
        field(
            "Days within which every byte is read again: each run reads the bytes that were not read for the longest "
            "time. 0 means everything in each run."
        ),
    ] = REREAD_DAYS
    chunk_size: Annotated[
        str,
        Meta(max_length=16, pattern=f"^({'|'.join(CHUNK_SIZES)})$"),
        field(f"Bytes of a log that share a digest: {CHUNK_SIZE_FORM}."),
    ] = CHUNK_SIZE
    rate_limit: Annotated[
        str,
        Meta(max_length=16, pattern="^[1-9][0-9]{0,9}(Ki|Mi|Gi|k|M|G)?$"),
        checked(
            Rule("quantity(self).compareTo(quantity('1M')) >= 0", "rateLimit is at least 1M: less would never end")
        ),
        field(
            "Bytes per second that are read from each replica at most, at least 1M. It leaves the disk to replication "
            "and consumers. A sidecar serves at most config.verifyMaxBytesPerSecond: raise that too for more than "
            "100M."
        ),
    ] = "100M"
    executors: Annotated[
        int,
        Meta(ge=0, le=64),
        field(
            "Pods that share the work. With 0 the job's own pod does all of it, without Spark. This is enough for most "
            "groups because the sidecars compute the digests."
        ),
    ] = 1
    max_executors: Annotated[
        Annotated[int, Meta(ge=1, le=64)] | None,
        field(
            "Turns on Spark's dynamic allocation: while tasks wait, more executors are started, up to this number; "
            "idle ones are removed after a minute. Needs executors to be at least 1. Absent means always as many as "
            "executors."
        ),
    ] = None
    resources: Annotated[
        VerificationResources,
        field(
            "Requests and limits of the pods, as in a container's resources. Half of the memory (limit, else request) "
            "is Spark's heap, with executors. The memory limit of an executor is always its request."
        ),
    ] = VerificationResources()
    history: Annotated[
        VerificationHistory | None,
        field(
            "Where results, and the offsets that were compared, are kept. Absent means nowhere: then each run compares "
            "everything."
        ),
    ] = None
    timeout_seconds: Annotated[
        int,
        Meta(ge=60, le=604_800),
        field(
            "How long a comparison may take, with all its three attempts. With a history each of them ends by itself "
            "after a quarter of this time, and the next one continues where it was."
        ),
    ] = 3600
    image: Annotated[
        Image | None, field("Image of the pods; absent means the image spark of the operator's version.")
    ] = None


class VerificationStatus(TypedDict, total=False):
    """What the last comparison found."""

    lastTime: Annotated[Time, field("When the comparison ended.")]
    result: Annotated[
        str,
        field("Aligned, Different, or Failed (no result, for example because a replica could not be read)."),
    ]
    message: Annotated[str, field("The result in a sentence.")]
    alignedUpTo: Annotated[int, field("All replicas are equal below this offset of the log, as far as they have it.")]
    epoch: Annotated[int, field("The masterEpoch in which the last compared message was written.")]
    findings: Annotated[int, field("How many differences were found.")]
    details: Annotated[tuple[str, ...], Meta(max_length=10), field("The first differences found, one sentence each.")]
    bytes: Annotated[int, field("Bytes of the log that were compared.")]
    durationSeconds: Annotated[int, field("How long the comparison took.")]
    full: Annotated[bool, field("Whether everything was compared.")]
    job: Annotated[str, field("Name of the Job.")]
    lastFullTime: Annotated[Time, field("When everything was last compared.")]
    oldestReadTime: Annotated[Time, field("Every byte that was compared was read at this time or later.")]
    oldestReadOffset: Annotated[int, field("Offset of the bytes that were not read for the longest time.")]
