"""The operator's settings, all from the environment as a Deployment sets it. Read once by `main`."""

import os
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec

from rocketmq_runtime.config.settings import SettingsError
from rocketmq_runtime.version import __version__

PREFIX: Final = "OPERATOR_"
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class OperatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Each field is the variable OPERATOR_<FIELD>; fields of images are ROCKETMQ_HA_<FIELD>."""

    namespaces: str = ""
    """Comma-separated; empty: all namespaces."""
    namespace: str = "default"
    """Where the operator runs and has its Lease."""
    pod_name: str = ""
    """The holder in the Lease; empty: the host's name."""
    deployment: str = ""
    """The operator's Deployment, which `release-finalizers` stops. Empty: none."""
    image_repository: str = "rocketmq-ha"
    image_tag: str = __version__
    image_apache_broker: str = ""
    """Image of official brokers; empty: apache-broker:5.3.3 of the repository."""
    log_format: Literal["json", "console"] = "json"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    resync_seconds: Seconds = 60.0
    """Time between two reconciles of a resource without events. Costs no call if nothing differs."""
    workers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8
    """Resources that are reconciled concurrently."""
    health_host: str = ""
    """Address of both ports; empty: all."""
    health_port: Port = 8080
    metrics_port: Port = 8081
    lease_seconds: Seconds = 30.0
    """Another operator takes the Lease when it was not renewed for this time."""
    hand_over_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=60)] = 10.0
    """How long a planned switchover may take, and sends may be refused for it."""
    network_policies: bool = True
    """Whether the operator creates NetworkPolicies."""

    @property
    def watched(self) -> tuple[str, ...]:
        """The watched namespaces; empty: all."""
        return tuple(dict.fromkeys(name.strip() for name in self.namespaces.split(",") if name.strip()))

    @property
    def holder(self) -> str:
        return self.pod_name or os.uname().nodename


def load(environ: Mapping[str, str] = os.environ) -> OperatorSettings:
    """From the environment.

    Raises:
        SettingsError: a value that does not parse or is out of bounds.
    """
    values: dict[str, str] = {}
    for field in OperatorSettings.__struct_fields__:
        text = environ.get(_variable(field), "").strip()
        if text:
            values[field] = text
    try:
        return msgspec.convert(values, OperatorSettings, strict=False)
    except msgspec.ValidationError as error:
        problem, _, field = str(error).partition(" - at `$.")
        raise SettingsError(f"{_variable(field.rstrip('`'))}: {problem}") from error


def _variable(field: str) -> str:
    return f"ROCKETMQ_HA_{field.upper()}" if field.startswith("image_") else f"{PREFIX}{field.upper()}"
