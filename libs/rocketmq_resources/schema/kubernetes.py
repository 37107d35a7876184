"""Shapes of Kubernetes' own types. The operator passes them on as JSON; the API server checks these fields of them."""

from collections.abc import Mapping
from typing import Annotated, Literal, Required, TypedDict

from msgspec import Meta

from rocketmq_resources.decoding import Json
from rocketmq_resources.schema.declare import Int32, Rule, checked, field, formatted, shape

LabelName = Annotated[
    str, Meta(max_length=317, pattern="^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
]
"""The key of a label, with or without prefix."""
LabelValue = Annotated[str, Meta(max_length=63)]
ObjectName = Annotated[str, Meta(min_length=1, max_length=253)]
"""Of a Secret, a StorageClass, ..."""
Time = Annotated[str, formatted("date-time")]

Quantity = Annotated[
    int | str,
    Meta(
        extra_json_schema={
            "pattern": r"^[0-9]{1,19}(\.[0-9]{0,9})?([eE][+-]?[0-9]{1,2}|[mkMGTPE]|[KMGTPE]i)?$",
            "x-kubernetes-int-or-string": True,
        }
    ),
]
Amounts = Annotated[Mapping[str, Quantity], Meta(max_length=16)]


class ResourceRequirements(TypedDict, total=False):
    """A container's resources."""

    requests: Annotated[Amounts, field("Amounts reserved for the container, for example {cpu: 500m, memory: 1Gi}.")]
    limits: Annotated[Amounts, field("Amounts that the container cannot exceed.")]


Resources = Annotated[Json, shape(ResourceRequirements)]
SparkResources = Annotated[
    Resources,
    checked(
        Rule(
            "[has(self.limits) && 'memory' in self.limits ? self.limits['memory'] : '1Gi', "
            "has(self.requests) && 'memory' in self.requests ? self.requests['memory'] : '1Gi'] "
            ".all(m, type(m) == string && quantity(m).compareTo(quantity('1Gi')) >= 0)",
            "memory is at least 1Gi, with a unit: Spark does not start with less",
        )
    ),
]


class TopologySpreadConstraint(TypedDict, total=False):
    """The required fields of a constraint."""

    maxSkew: Required[Annotated[Int32, Meta(ge=1), field("By how many pods two domains may differ.")]]
    topologyKey: Required[Annotated[str, Meta(max_length=317), field("Label of nodes that defines the domains.")]]
    whenUnsatisfiable: Required[
        Annotated[
            Literal["DoNotSchedule", "ScheduleAnyway"],
            field("What happens to a pod that cannot satisfy the constraint."),
        ]
    ]


class Toleration(TypedDict, total=False):
    """A taint that pods tolerate."""

    key: Annotated[str, Meta(max_length=317), field("Key of the taint; absent with operator Exists means every taint.")]
    operator: Annotated[Literal["Exists", "Equal"], field("How key and value are compared.")]
    value: Annotated[LabelValue, field("Value of the taint, with operator Equal.")]
    effect: Annotated[
        Literal["NoSchedule", "PreferNoSchedule", "NoExecute"],
        field("Effect of the taint; absent means every effect."),
    ]
    tolerationSeconds: Annotated[int, field("How long a NoExecute taint is tolerated; absent means forever.")]


class EnvVar(TypedDict, total=False):
    """An environment variable of a container."""

    name: Required[
        Annotated[
            str,
            Meta(max_length=128, pattern="^[-._a-zA-Z][-._a-zA-Z0-9]*$"),
            field(
                "Name of the variable.",
                rules=(
                    Rule(
                        "!self.startsWith('ROCKETMQ_') "
                        "&& !(self in ['POD_NAME', 'POD_NAMESPACE', 'POD_INDEX', 'POD_IP', 'POD_IPS', "
                        "'POD_IP_FAMILY'])",
                        "ROCKETMQ_* would overrule the configuration, and POD_NAME, POD_NAMESPACE, POD_INDEX, POD_IP, "
                        "POD_IPS and POD_IP_FAMILY are set by the operator: put RocketMQ's keys into spec.config",
                    ),
                ),
            ),
        ]
    ]
    value: Annotated[str, Meta(max_length=8192), field("Value of the variable.")]
    valueFrom: Annotated[
        Json,
        field("Source of the value, as in a container's env (secretKeyRef, configMapKeyRef, fieldRef, ...)."),
    ]
