"""The parts of a BrokerGroup's spec that have fields of their own: images, storage, resources, JVM, failover."""

from typing import Annotated, ClassVar, Final, Literal

import msgspec
from msgspec import Meta

from rocketmq_formats.remoting.controller import LONGEST_WRITE_LEASE_MS
from rocketmq_resources.schema.common import Image, ImagePull, ReclaimPolicy, StorageClassName, StorageSize
from rocketmq_resources.schema.declare import Rule, field, fixed, fixed_optional
from rocketmq_resources.schema.kubernetes import Resources
from rocketmq_settings.declare import Millis
from rocketmq_settings.sidecar import HANG_MS, LEASE_MS, NOT_CAUGHT_UP_MS, HangMillis, LeaseMillis

JvmSize = Annotated[str, Meta(max_length=16, pattern="^[1-9][0-9]{0,6}([kmgKMG]|[KMG]i)$")]
JvmOption = Annotated[str, Meta(max_length=512, pattern=r"^-[A-Za-z]\S*$")]
FailoverMode = Literal["automatic", "none"]
HeartbeatMillis = Annotated[int, Meta(ge=50, le=5000)]
HEARTBEAT_MS: Final = 500
"""Both differ from the key's: see `differences`."""


class BrokerImages(ImagePull, frozen=True, rename="camel", kw_only=True):
    """Images of the containers."""

    broker: Annotated[
        Image | None, field("Image of the container broker; absent means the operator's default for the engine.")
    ] = None
    sidecar: Annotated[
        Image | None, field("Image of the container sidecar; absent means the operator's own version.")
    ] = None


class CommitLogVolume(msgspec.Struct, frozen=True, rename="camel"):
    """A volume of its own for the commit log."""

    RULES: ClassVar = (fixed_optional("storageClassName", "storageClassName cannot change"),)

    size: Annotated[StorageSize, field("Size of the volume. May grow where the StorageClass allows it, never shrink.")]
    storage_class_name: StorageClassName = None


class BrokerStorage(msgspec.Struct, frozen=True, rename="camel"):
    """The volume of each replica."""

    RULES: ClassVar = (
        fixed_optional(
            "storageClassName", "storageClassName cannot change: create another group and move the producers to it"
        ),
        Rule(
            "has(self.commitLog) == has(oldSelf.commitLog)",
            "commitLog cannot be added or removed: the log would have to move to another volume",
            "commitLog",
        ),
    )

    size: Annotated[
        StorageSize,
        field(
            "Size of the volume with commit log, queues and identity. May grow where the StorageClass allows it, "
            "never shrink."
        ),
    ] = "10Gi"
    storage_class_name: StorageClassName = None
    reclaim_policy: Annotated[
        ReclaimPolicy,
        field(
            "What happens to volumes when the group is deleted or scaled down. Retain: they are kept, and a group of "
            "the same name uses them again. Delete: they are deleted."
        ),
    ] = "Retain"
    commit_log: Annotated[
        CommitLogVolume | None,
        field(
            "A second volume for the commit log alone; the first then holds queues and identity. Cannot be added or "
            "removed later."
        ),
    ] = None


class BrokerResources(msgspec.Struct, frozen=True, rename="camel"):
    """ResourceRequirements of each container."""

    broker: Annotated[
        Resources,
        field(
            "Resources of the container broker. The memory limit (else the request) also sizes the JVM of engine "
            "apache. Leave room for the page cache, which serves reads."
        ),
    ] = {}
    sidecar: Annotated[Resources, field("Resources of the container sidecar.")] = {}


class Jvm(msgspec.Struct, frozen=True, rename="camel"):
    """The JVM of an Apache broker. Sizes: `2g` or `2Gi`."""

    heap: Annotated[
        JvmSize | None, field("-Xms and -Xmx, for example 4g or 4Gi; absent means a part of the container's memory.")
    ] = None
    direct_memory: Annotated[
        JvmSize | None, field("-XX:MaxDirectMemorySize; absent means a part of the container's memory.")
    ] = None
    options: Annotated[
        tuple[JvmOption, ...], Meta(max_length=64), field("Further options of java, one per entry.")
    ] = ()


class Failover(msgspec.Struct, frozen=True, rename="camel"):
    """Whether another replica takes a dead master's place, and how soon dead and slow replicas are noticed."""

    mode: Annotated[
        FailoverMode,
        field(
            "What happens when the master fails. Cannot change. automatic: the controllers elect another master. "
            "none: RocketMQ's master/slave deployment without controllers, for engine native. The replica of pod 0 is "
            "always master; while it is away, messages are refused, and a slave may act for it (actingMaster). A "
            "rolling update restarts it last.",
            rules=(
                fixed(
                    "failover.mode cannot change: ids and epochs of the replicas' logs differ; create another group "
                    "and move the producers to it"
                ),
            ),
        ),
    ] = "automatic"
    lease_timeout_ms: Annotated[
        LeaseMillis,
        field(
            "How long a master needs no further answer from the controllers. For engine native. With durability "
            "relaxed it then refuses messages; with strict it continues as long as every member of the SyncStateSet "
            "acknowledges. It should be less than the controllers' brokerSuspectTimeoutMs, and is at most "
            f"{LONGEST_WRITE_LEASE_MS} with durability relaxed."
        ),
    ] = LEASE_MS
    hang_timeout_ms: Annotated[
        HangMillis,
        field("How long a broker process may not respond before it counts as dead. For engine native."),
    ] = HANG_MS
    heartbeat_interval_ms: Annotated[
        HeartbeatMillis,
        field(
            "Time between two heartbeats of a replica to the controllers; at most a quarter of leaseTimeoutMs is used."
        ),
    ] = HEARTBEAT_MS
    max_time_slave_not_catchup_ms: Annotated[
        Millis, field("How long a slave may lag before it is removed from the SyncStateSet.")
    ] = NOT_CAUGHT_UP_MS
