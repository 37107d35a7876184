"""Certificates for the gRPC ports of controllers and sidecars: writes the Secret of spec.grpcTlsSecretName to files
for gRPC.

Used by `quorum_registry` and `observe`. The Secret is read by its name, periodically, never listed.
"""

import base64
import binascii
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import structlog

from rocketmq_api.client_tls import ClientTls
from rocketmq_operator.kubernetes.kube import Kube, KubeError
from rocketmq_resources.broker_group import BrokerGroup
from rocketmq_resources.controller_cluster import ControllerCluster

FILES: Final = ("tls.crt", "tls.key", "ca.crt")
READ_AGAIN: Final = 600.0
"""Seconds; certificates are renewed days before they expire."""

log = structlog.get_logger(__name__)


class TlsFiles:
    """The files of one operator, in a temporary folder."""

    def __init__(self, kube: Kube, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._clock = clock
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._known: dict[tuple[str, str], tuple[float, ClientTls]] = {}

    async def of(self, resource: ControllerCluster | BrokerGroup) -> ClientTls | None:
        """None: the resource uses plaintext.

        Raises:
            OSError: the Secret cannot be read or lacks a key.
        """
        secret = resource.spec.grpc_tls_secret_name
        if not secret:
            return None
        place = (resource.namespace, secret)
        read_at, known = self._known.get(place, (0.0, None))
        if known is None or self._clock() - read_at >= READ_AGAIN:
            try:
                body = await self._kube.get("Secret", resource.namespace, secret)
                known = self._write(place, body.get("data"))
            except (KubeError, OSError) as error:
                if known is None:
                    raise OSError(f"TLS of {resource.name}: {error}") from error
            else:
                self._known[place] = (self._clock(), known)
        return msgspec.structs.replace(known, server_name=resource.grpc_host)

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def _write(self, place: tuple[str, str], data: object) -> ClientTls:
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
                raise OSError(f"Secret {place[1]}: {file} is not base64") from error
            path = folder / file
            path.touch(mode=0o600, exist_ok=True)
            path.write_bytes(content)
        crt, key, authority = (str(folder / file) for file in FILES)
        return ClientTls(cert_file=crt, key_file=key, ca_file=authority)
