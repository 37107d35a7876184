"""Keys of `rocketmq-operator`, which reads no file: each is a variable of the environment, and the chart sets most."""

from typing import Annotated, Final

import msgspec

from rocketmq_settings.declare import LogFormat, LogLevel, Port, Settings, key

PREFIXES: Final = ("OPERATOR_", "ROCKETMQ_HA_IMAGE_")
"""How every variable begins."""

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400, extra={"unit": "s"})]


def _variable(field: str) -> str:
    return f"ROCKETMQ_HA_{field.upper()}" if field.startswith("image_") else f"OPERATOR_{field.upper()}"


class OperatorKeys(Settings, frozen=True, rename=_variable):
    """Every variable of `rocketmq-operator`."""

    # Where it works
    namespaces: Annotated[str, key("Namespaces to manage, comma-separated.", default="all")] = ""
    namespace: Annotated[str, key("Namespace of the operator, its Lease and (in NetworkPolicies) its pods.")] = (
        "default"
    )
    pod_name: Annotated[str, key("Name of the holder in the Lease.", default="the host's name")] = ""
    deployment: Annotated[str, key("The operator's Deployment, which `release-finalizers` stops.")] = ""

    # Images
    image_repository: Annotated[str, key("`REPOSITORY/PROCESS:TAG` is the image where a resource names none.")] = (
        "rocketmq-ha"
    )
    image_tag: Annotated[str, key("Tag of these images.", default="the operator's own version")] = ""
    image_apache_broker: Annotated[
        str, key("Image for `engine: apache`.", default="`apache-broker:5.3.3` of the repository")
    ] = ""

    # What it does
    resync_seconds: Annotated[Seconds, key("Interval after which every resource is reconciled without an event.")] = (
        60.0
    )
    workers: Annotated[int, msgspec.Meta(ge=1, le=64), key("Resources that are reconciled at a time.")] = 8
    hand_over_seconds: Annotated[
        float,
        msgspec.Meta(ge=0.1, le=60, extra={"unit": "s"}),
        key("Time that a planned switchover may take; sends are refused for at most that time."),
    ] = 10.0
    lease_seconds: Annotated[Seconds, key("Silence after which another operator takes the Lease.")] = 30.0
    network_policies: Annotated[bool, key("Whether NetworkPolicies are created.")] = True
    fixed_ids: Annotated[
        bool,
        key(
            "Whether pods run as user, group and fsGroup 1000; false: with those that the platform assigns, as "
            "OpenShift's `restricted-v2` does."
        ),
    ] = True

    # The process
    log_format: Annotated[LogFormat, key("Format of the log lines.")] = "json"
    log_level: Annotated[LogLevel, key("Least important level that is logged.")] = "info"
    health_host: Annotated[str, key("Address of both ports.", default="all")] = ""
    health_port: Annotated[Port, key("Port of `/healthz` and `/readyz`.")] = 8080
    metrics_port: Annotated[Port, key("Port of `/metrics`.")] = 8081
