"""kubectl's flags as values. Not in `kube`, which imports what --help and completion do not need."""

import msgspec


class KubeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """kubectl's flags; None: as the kubeconfig says."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None
    request_timeout: float = 10.0
