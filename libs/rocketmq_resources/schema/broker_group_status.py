"""A BrokerGroup's status: what the operator and the verification write."""

from typing import Annotated, Required, TypedDict

from msgspec import Meta

from rocketmq_resources.schema.common import CONDITIONS, Condition, ConditionType, ObservedGeneration, PhaseReason
from rocketmq_resources.schema.declare import Int32, field
from rocketmq_resources.schema.verification import VerificationStatus


class ReplicaStatus(TypedDict, total=False):
    """One replica."""

    pod: Required[Annotated[str, field("Name of the pod.")]]
    brokerId: Annotated[int, field("The replica's identity within the group, assigned once by the controllers.")]
    role: Annotated[str, field("master, slave or none.")]
    address: Annotated[str, field("Where clients reach the broker.")]
    node: Annotated[str, field("Node that the pod runs on.")]
    maxOffset: Annotated[int, field("End of its log, in bytes.")]
    lag: Annotated[int, field("Bytes that its log is shorter than the master's.")]
    inSync: Annotated[bool, field("Whether it is in the SyncStateSet.")]
    alive: Annotated[bool, field("Whether the controllers receive its heartbeats.")]
    ready: Annotated[bool, field("Whether the pod is ready.")]
    upToDate: Annotated[bool, field("Whether the pod has the newest revision.")]
    fenced: Annotated[bool, field("Whether it refuses messages because of spec.fenced.")]


class BrokerGroupCondition(Condition, total=False):
    """With the types of this kind."""

    type: Required[
        Annotated[
            ConditionType,
            field(
                "What the condition is about. Ready: all that this generation of the spec asks for was carried out, "
                "the group takes messages, and every replica is in sync. Available: the group takes messages. "
                "ActingMaster: there is no master, and a slave serves consumers. SyncStateSetHealthy: as many replicas "
                "are in sync as wanted. LogsAligned: the last comparison found no difference. Progressing: a change is "
                "under way. Paused: spec.paused is true. Degraded: something is missing or was refused."
            ),
        ]
    ]


class BrokerGroupStatus(TypedDict, total=False):
    """What the operator writes."""

    observedGeneration: ObservedGeneration
    phase: Annotated[
        str,
        field(
            "What the operator is doing: Pending, Creating, Running, Degraded, Updating, SwitchingOver, Scaling, "
            "Rebuilding, Hibernating, Hibernated, Waking or Deleting."
        ),
    ]
    phaseReason: PhaseReason
    master: Annotated[str, field("Name of the master's pod; absent without a master.")]
    actingMaster: Annotated[
        str, field("Name of the pod whose slave serves consumers because there is no master; absent if none does.")
    ]
    masterBrokerId: Annotated[int, field("brokerId of the master.")]
    masterEpoch: Annotated[int, field("Grows by one with each election.")]
    syncStateSetEpoch: Annotated[int, field("Grows by one with each change of the SyncStateSet.")]
    inSync: Annotated[str, field("Replicas in the SyncStateSet, of those wanted, for example 3/3.")]
    inSyncReplicas: Annotated[Int32, field("Replicas in the SyncStateSet.")]
    replicas: Annotated[Int32, field("Pods that exist.")]
    readyReplicas: Annotated[Int32, field("Pods that are ready.")]
    selector: Annotated[str, field("Selects the pods; for kubectl scale and autoscalers.")]
    image: Annotated[str, field("Image of the broker's container in the newest revision.")]
    currentRevision: Annotated[str, field("Revision of every pod while no update is under way.")]
    updateRevision: Annotated[str, field("Revision that pods should have.")]
    replicaStatuses: Annotated[tuple[ReplicaStatus, ...], field("Every replica.", list_type="map", list_keys=("pod",))]
    retiredBrokerIds: Annotated[
        tuple[int, ...],
        field("Ids of replicas that were scaled down or rebuilt; they are never assigned again.", list_type="set"),
    ]
    verification: Annotated[
        VerificationStatus, field("The last comparison of the replicas' logs. Written by the job that made it.")
    ]
    conditions: Annotated[tuple[BrokerGroupCondition, ...], Meta(max_length=32), CONDITIONS]
