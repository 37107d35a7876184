"""Fields that more than one kind has. Names in JSON are camelCase."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Required, TypedDict

import msgspec
from msgspec import Meta

from rocketmq_resources import names
from rocketmq_resources.decoding import Json
from rocketmq_resources.reserved_keys import instead
from rocketmq_resources.schema.declare import Rule, checked, field, shape
from rocketmq_resources.schema.kubernetes import (
    EnvVar,
    LabelName,
    LabelValue,
    ObjectName,
    Time,
    Toleration,
    TopologySpreadConstraint,
)

PullPolicy = Literal["Always", "IfNotPresent", "Never"]
ReclaimPolicy = Literal["Retain", "Delete"]
AntiAffinity = Literal["preferred", "required", "none"]
IpFamily = Literal["IPv4", "IPv6"]
IpFamilyPolicy = Literal["SingleStack", "PreferDualStack", "RequireDualStack"]
Image = Annotated[str, Meta(min_length=1, max_length=512, pattern=r"^\S+$")]
Replicas = Annotated[int, Meta(ge=1, le=9)]
StorageSize = Annotated[
    str,
    Meta(max_length=24, pattern=r"^[1-9][0-9]{0,14}(\.[0-9]{1,3})?(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?$"),
    checked(Rule("quantity(self).compareTo(quantity(oldSelf)) >= 0", "size cannot shrink: volumes only grow")),
]
StorageClassName = Annotated[
    ObjectName | None, field("StorageClass of the volume; absent means the cluster's default. Cannot change.")
]
Config = Annotated[
    Mapping[str, Annotated[str, Meta(max_length=4096, pattern=r"^[^\r\n]*$")]],
    Meta(max_length=128),
]
"""RocketMQ's own keys."""


def config_keys(
    description: str, reserved: Mapping[str, str], *, example: str, creation_only: frozenset[str] = frozenset()
) -> Meta:
    """The metadata of spec.config, with a rule per key that it may not set or change."""
    return field(
        description,
        rules=(
            *(
                Rule(f"!('{key}' in self)", f"config.{key} cannot be set: {instead(decider)}")
                for key, decider in sorted(reserved.items())
            ),
            Rule(
                "self.all(k, k.matches('^[A-Za-z][A-Za-z0-9]*$'))",
                f"config: a key is letters and digits, as RocketMQ writes it, for example {example}",
            ),
            *(
                Rule(
                    f"('{key}' in self) == ('{key}' in oldSelf) "
                    f"&& (!('{key}' in self) || self['{key}'] == oldSelf['{key}'])",
                    f"config.{key} cannot change: files of another size cannot be read",
                )
                for key in sorted(creation_only)
            ),
        ),
        default={},
    )


class Reference(msgspec.Struct, frozen=True, rename="camel"):
    """Another of our resources by name."""

    name: Annotated[
        str,
        Meta(min_length=1, max_length=63, pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$"),
        field("Name of the resource."),
    ]
    namespace: Annotated[
        Annotated[str, Meta(min_length=1, max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] | None,
        field("Namespace of the resource; absent means the namespace of this one."),
    ] = None


class ImagePull(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """How images are pulled. Each kind adds the images of its own containers."""

    pull_policy: Annotated[PullPolicy, field("When images are pulled.")] = "IfNotPresent"
    pull_secrets: Annotated[
        tuple[ObjectName, ...],
        Meta(max_length=16),
        field("Names of Secrets of this namespace with credentials for the registries.", list_type="set"),
    ] = ()


class Scheduling(msgspec.Struct, frozen=True, rename="camel"):
    """Where the pods run."""

    anti_affinity: Annotated[
        AntiAffinity,
        field(
            "Whether two pods of this resource may share a node (or another domain that topologyKey names). "
            "preferred: they are apart where possible. required: they are never together, and a pod without a node of "
            "its own stays Pending. none: there is no rule."
        ),
    ] = "preferred"
    topology_key: Annotated[
        LabelName,
        Meta(min_length=1),
        field("Label of nodes that antiAffinity separates pods by, for example topology.kubernetes.io/zone."),
    ] = "kubernetes.io/hostname"
    affinity: Annotated[
        Json,
        field(
            "Affinity of the pods as in a Pod's spec.affinity (nodeAffinity, podAffinity, podAntiAffinity). "
            "The operator adds the rule of antiAffinity."
        ),
    ] = {}
    topology_spread_constraints: Annotated[
        tuple[Annotated[Json, shape(TopologySpreadConstraint, more_fields=True)], ...],
        Meta(max_length=16),
        field(
            "As in a Pod's spec.topologySpreadConstraints. A constraint without labelSelector gets the selector of "
            "this resource's pods."
        ),
    ] = ()
    node_selector: Annotated[Mapping[str, LabelValue], Meta(max_length=32), field("Labels that a node must have.")] = {}
    tolerations: Annotated[
        tuple[Annotated[Json, shape(Toleration)], ...],
        Meta(max_length=32),
        field("Taints that the pods tolerate, as in a Pod's spec.tolerations."),
    ] = ()
    priority_class_name: Annotated[
        ObjectName | None,
        field("PriorityClass of the pods. Set one, so that pods without data are evicted first."),
    ] = None


class PodTemplate(msgspec.Struct, frozen=True, rename="camel"):
    """What is added to every pod."""

    labels: Annotated[
        Mapping[str, LabelValue],
        Meta(max_length=32),
        field(
            "Labels added to the pods. Labels that the operator uses cannot be set.",
            rules=(
                Rule(
                    "self.all(k, " + " && ".join(f"!k.startsWith('{p}')" for p in names.RESERVED_PREFIXES) + ")",
                    "labels that begin with app.kubernetes.io/, apps.kubernetes.io/, statefulset.kubernetes.io/ or "
                    "rocketmq-ha.io/ are set by the operator: use a prefix of your own",
                ),
            ),
        ),
    ] = {}
    annotations: Annotated[
        Mapping[str, Annotated[str, Meta(max_length=8192)]],
        Meta(max_length=64),
        field(
            "Annotations added to the pods.",
            rules=(
                Rule(
                    "self.all(k, !k.startsWith('rocketmq-ha.io/'))",
                    "annotations that begin with rocketmq-ha.io/ are set by the operator: use a prefix of your own",
                ),
            ),
        ),
    ] = {}
    env: Annotated[
        tuple[Annotated[Json, shape(EnvVar)], ...],
        Meta(max_length=64),
        field(
            "Environment variables added to every container, as in a container's env. Names that begin with "
            "ROCKETMQ_ would overrule the configuration and are refused.",
            list_type="map",
            list_keys=("name",),
        ),
    ] = ()
    service_account_name: Annotated[
        ObjectName | None,
        field("ServiceAccount of the pods; absent means the namespace's default. No token is mounted in either case."),
    ] = None


class Services(msgspec.Struct, frozen=True, rename="camel"):
    """IP families, as in a Service's spec."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.ipFamilies) || size(self.ipFamilies) < 2 "
            "|| (has(self.ipFamilyPolicy) && self.ipFamilyPolicy != 'SingleStack')",
            "two ipFamilies need ipFamilyPolicy: PreferDualStack or RequireDualStack",
            "ipFamilyPolicy",
        ),
    )

    ip_family_policy: Annotated[
        IpFamilyPolicy | None,
        field(
            "Whether the Services have one IP family or both, as in a Service's spec.ipFamilyPolicy. Absent means "
            "Kubernetes' default, SingleStack."
        ),
    ] = None
    ip_families: Annotated[
        tuple[IpFamily, ...],
        Meta(min_length=1, max_length=2),
        field(
            "IP families of the Services, as in a Service's spec.ipFamilies. Brokers announce their pod's address of "
            "the first one. Absent means the cluster's default. The first one cannot change.",
            rules=(
                Rule("size(self) < 2 || self[0] != self[1]", "ipFamilies must not name a family twice"),
                Rule(
                    "self[0] == oldSelf[0]",
                    "the first of ipFamilies cannot change: Kubernetes keeps a Service's primary family",
                ),
            ),
        ),
    ] = ()


class Spec(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Fields of every kind's spec. Each kind describes image and config itself."""

    image: ImagePull = ImagePull()
    config: Config = {}
    scheduling: Annotated[
        Scheduling,
        field("Where the pods run. Unless antiAffinity forbids it, pods of one resource run on different nodes."),
    ] = Scheduling()
    pod_template: Annotated[
        PodTemplate, field("Additions to every pod of this resource. A change restarts the pods one by one.")
    ] = PodTemplate()
    service: Annotated[
        Services,
        field(
            "IP families of every Service that the operator makes for this resource. A change restarts the pods one by "
            "one. What Kubernetes refuses, such as a family that the cluster lacks, shows in condition Degraded."
        ),
    ] = Services()
    paused: Annotated[
        bool,
        field(
            "While true the operator changes nothing of this resource but still updates its status. Failover does "
            "not depend on the operator and still works."
        ),
    ] = False


# Status

ObservedGeneration = Annotated[int, field("The metadata.generation that the rest of the status belongs to.")]
Phase = Annotated[
    str, field("What the operator is doing: Pending, Creating, Running, Degraded, Updating, Scaling or Deleting.")
]
PhaseReason = Annotated[str, field("The reason for the phase, in a sentence.")]


ConditionType = Annotated[
    str, Meta(max_length=316, pattern="^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
]


class Condition(TypedDict, total=False):
    """A condition as Kubernetes defines it. Each kind describes its types."""

    type: Required[ConditionType]
    status: Required[Annotated[Literal["True", "False", "Unknown"], field("Whether the condition holds.")]]
    reason: Required[
        Annotated[
            str,
            Meta(min_length=1, max_length=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
            field("The reason in one CamelCase word."),
        ]
    ]
    message: Required[Annotated[str, Meta(max_length=32768), field("The reason in a sentence.")]]
    lastTransitionTime: Required[Annotated[Time, field("When the status of the condition last changed.")]]
    observedGeneration: Annotated[int, Meta(ge=0), field("The metadata.generation that this was found with.")]


CONDITIONS = field("The conditions of the resource, one entry per type.", list_type="map", list_keys=("type",))
