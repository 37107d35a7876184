"""Client certificates for mutual TLS to controllers and sidecars that require it (spec.grpcTlsSecretName).

A user needs the right to read that Secret: without it the commands show the resource's status. gRPC takes file names,
so the files are in a temporary folder until the process ends.
"""

import atexit
import base64
import binascii
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rocketmq_api.client_tls import ClientTls
from rocketmq_kubectl.cluster.kube import Kube
from rocketmq_kubectl.cluster.resources import core
from rocketmq_kubectl.errors import CommandRefusedError
from rocketmq_resources.broker_group import BrokerGroup
from rocketmq_resources.controller_cluster import ControllerCluster

KEYS: Final = {"cert_file": "tls.crt", "key_file": "tls.key", "ca_file": "ca.crt"}
"""Names of cert-manager and kubectl create secret tls."""


async def client_files(kube: Kube, resource: ControllerCluster | BrokerGroup) -> ClientTls:
    """The Secret's files for calls to any member or replica.

    Raises:
        PluginError: it cannot be read, or is incomplete.
    """
    name = resource.spec.grpc_tls_secret_name or ""
    data = (await kube.get(core(resource.namespace, "secrets", name))).get("data")
    folder = Path(tempfile.mkdtemp(prefix="kubectl-rocketmq-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    files = {}
    for field, key in KEYS.items():
        try:
            content = base64.b64decode(str((data if isinstance(data, Mapping) else {})[key]), validate=True)
        except (KeyError, binascii.Error) as error:
            raise CommandRefusedError(f"Secret {resource.namespace}/{name} has no usable {key}") from error
        path = folder / key
        path.touch(mode=0o600)
        path.write_bytes(content)
        files[field] = str(path)
    return ClientTls(**files, server_name=resource.grpc_host)
