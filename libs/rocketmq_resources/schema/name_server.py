"""NameServer: where clients and brokers look up routes."""

from typing import Annotated, Final, Required, TypedDict

import msgspec
from msgspec import Meta

from rocketmq_resources import names
from rocketmq_resources.reserved_keys import NAME_SERVER as RESERVED
from rocketmq_resources.schema.common import (
    CONDITIONS,
    Condition,
    ConditionType,
    Config,
    Image,
    ImagePull,
    ObservedGeneration,
    Phase,
    PhaseReason,
    Replicas,
    Spec,
    config_keys,
)
from rocketmq_resources.schema.declare import AGE, PHASE, Column, CustomResource, Int32, field
from rocketmq_resources.schema.kubernetes import Resources


class NameServerImages(ImagePull, frozen=True, rename="camel", kw_only=True):
    """Images of the containers."""

    namesrv: Annotated[
        Image | None, field("Image of the container namesrv; absent means the operator's own version.")
    ] = None


class NameServerSpec(Spec, frozen=True, rename="camel", kw_only=True):
    """What a user writes."""

    replicas: Annotated[Replicas, field("Name servers, each in its own pod. Can be changed with kubectl scale.")] = 2
    image: Annotated[
        NameServerImages,
        field("Image of the pods' container. A new image is rolled out one replica at a time."),
    ] = NameServerImages()
    resources: Annotated[
        Resources, field("Requests and limits of the container namesrv, as in a container's resources.")
    ] = msgspec.field(default_factory=dict)
    config: Annotated[
        Config,
        config_keys(
            'Configuration keys of the name servers, for example {orderMessageEnable: "true"}. Keys that a field or '
            "the operator sets are refused. supportActingMaster and notifyMinBrokerIdChanged are true unless they are "
            "set here. A change restarts the replicas one by one.",
            RESERVED,
            example="orderMessageEnable",
        ),
    ] = msgspec.field(default_factory=dict)


class NameServerCondition(Condition, total=False):
    """With the types of this kind."""

    type: Required[
        Annotated[
            ConditionType,
            field(
                "What the condition is about. Ready: all that this generation of the spec asks for was carried out, "
                "and every replica is ready. Available: one replica is ready. Progressing: a change is under way. "
                "Paused: spec.paused is true. Degraded: something is missing or was refused."
            ),
        ]
    ]


class NameServerStatus(TypedDict, total=False):
    """What the operator writes."""

    observedGeneration: ObservedGeneration
    phase: Phase
    phaseReason: PhaseReason
    ready: Annotated[str, field("Replicas that are ready, of those wanted, for example 2/2.")]
    replicas: Annotated[Int32, field("Pods that exist.")]
    readyReplicas: Annotated[Int32, field("Pods that are ready.")]
    selector: Annotated[str, field("Selects the pods; for kubectl scale and autoscalers.")]
    image: Annotated[str, field("Image of the container namesrv in the newest revision.")]
    namesrvAddr: Annotated[str, field("What brokers and clients take as namesrvAddr: host:port;host:port.")]
    conditions: Annotated[tuple[NameServerCondition, ...], Meta(max_length=32), CONDITIONS]


NAME_SERVER: Final = CustomResource(
    kind="NameServer",
    short_name="rns",
    description=(
        "NameServer is a set of RocketMQ name servers, where brokers register and clients look up routes. Each replica "
        "has all routes; clients are configured with the addresses of all replicas."
    ),
    longest_name=names.MAX_NAME_SERVER_NAME,
    spec=NameServerSpec,
    status=NameServerStatus,
    columns=(
        Column(
            "Ready",
            '.status.conditions[?(@.type=="Ready")].status',
            description="Whether the newest spec was carried out and every replica is ready.",
        ),
        Column("Replicas", ".status.ready", description="Replicas that are ready, of those wanted."),
        PHASE,
        AGE,
        Column("Address", ".status.namesrvAddr", description="What clients take as namesrvAddr.", wide=True),
        Column("Image", ".status.image", description="Image of the container namesrv.", wide=True),
    ),
    scale=True,
)
