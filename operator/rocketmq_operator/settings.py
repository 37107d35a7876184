"""The operator's settings: its variables (`rocketmq_settings.operator`) and what follows. Read once by `main`."""

import os
from collections.abc import Mapping

from rocketmq_runtime.config.settings import Loaded, build_settings
from rocketmq_runtime.version import __version__
from rocketmq_settings.checks import take_bind_hosts
from rocketmq_settings.operator import PREFIXES, OperatorKeys


class OperatorSettings(OperatorKeys, frozen=True):
    """Every variable of `rocketmq-operator`."""

    def __post_init__(self) -> None:
        take_bind_hosts(self, "OPERATOR_HEALTH_HOST")

    @property
    def watched(self) -> tuple[str, ...]:
        """The watched namespaces; empty: all."""
        return tuple(dict.fromkeys(name.strip() for name in self.namespaces.split(",") if name.strip()))

    @property
    def holder(self) -> str:
        """The holder in the Lease."""
        return self.pod_name or os.uname().nodename

    @property
    def tag(self) -> str:
        """Of images that a resource does not name."""
        return self.image_tag or __version__


def load(environ: Mapping[str, str] = os.environ) -> Loaded[OperatorSettings]:
    """From the environment, where an empty variable is not set.

    Raises:
        SettingsError: as `build_settings`.
    """
    given = {name: value for name, value in environ.items() if name.startswith(PREFIXES) and value.strip()}
    return build_settings(OperatorSettings, given)
