"""Certificates for the controllers' gRPC port: from the Secret that spec.grpcTlsSecretName names into files that gRPC
reads.

Used by `quorum_book`. The Secret is read by its name, now and then, never listed.
"""

import base64
import binascii
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from rocketmq_api.channels import ClientTls
from rocketmq_operator.domain import names
from rocketmq_operator.domain.spec.controller_cluster import ControllerCluster
from rocketmq_operator.kube import Kube, KubeError

FILES: Final = ("tls.crt", "tls.key", "ca.crt")
READ_AGAIN: Final = 600.0
"""Seconds; certificates are renewed days before they end."""

log = structlog.get_logger(__name__)


class TlsFiles:
    """Of one process; its folder goes with it."""

    def __init__(self, kube: Kube, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._clock = clock
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._known: dict[tuple[str, str], tuple[float, ClientTls]] = {}

    async def of(self, cluster: ControllerCluster) -> ClientTls | None:
        """None: the cluster speaks plaintext.

        Raises:
            OSError: the Secret cannot be read or has not what is needed.
        """
        secret = cluster.spec.grpc_tls_secret_name
        if not secret:
            return None
        place = (cluster.namespace, secret)
        read_at, known = self._known.get(place, (0.0, None))
        if known is not None and self._clock() - read_at < READ_AGAIN:
            return known
        try:
            body = await self._kube.get("Secret", cluster.namespace, secret)
            tls = self._write(place, body.get("data"), cluster)
        except (KubeError, OSError) as error:
            if known is not None:
                return known
            raise OSError(f"TLS of {cluster.name}: {error}") from error
        self._known[place] = (self._clock(), tls)
        return tls

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def _write(self, place: tuple[str, str], data: object, cluster: ControllerCluster) -> ClientTls:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="rocketmq-operator-")
        folder = Path(self._folder.name) / "_".join(place)
        folder.mkdir(mode=0o700, exist_ok=True)
        for file in FILES:
            text = data.get(file) if isinstance(data, Mapping) else None
            if not isinstance(text, str):
                raise OSError(f"Secret {place[1]} has no {file}")
            try:
                content = base64.b64decode(text, validate=True)
            except binascii.Error as error:
                raise OSError(f"Secret {place[1]}: {file} is no base64") from error
            path = folder / file
            path.touch(mode=0o600, exist_ok=True)
            path.write_bytes(content)
        stateful_set = names.controller(cluster.name)
        host = names.pod_host(names.pod_name(stateful_set, 0), stateful_set, cluster.namespace)
        # Members are called at their pods' addresses; their certificates are for names.
        crt, key, authority = (str(folder / file) for file in FILES)
        return ClientTls(cert_file=crt, key_file=key, ca_file=authority, server_name=host)
