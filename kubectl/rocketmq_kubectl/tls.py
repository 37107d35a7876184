"""The client's side of mutual TLS to controllers whose gRPC port asks for it (spec.grpcTlsSecretName).

The user's own right to read that Secret is the right to call the controllers: without it the commands show what the
resource's status says. gRPC takes file names, so the files live in a folder of ours until the process ends.
"""

import atexit
import base64
import binascii
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rocketmq_api.channels import ClientTls
from rocketmq_kubectl.errors import RefusedError
from rocketmq_kubectl.kube import Kube
from rocketmq_kubectl.resources import core
from rocketmq_operator.domain import names
from rocketmq_operator.domain.spec.controller_cluster import ControllerCluster

KEYS: Final = {"cert_file": "tls.crt", "key_file": "tls.key", "ca_file": "ca.crt"}
"""As cert-manager and kubectl create secret tls name them."""


async def client_files(kube: Kube, cluster: ControllerCluster) -> ClientTls:
    """The Secret's files for calls to any member.

    Raises:
        PluginError: it cannot be read, or is incomplete.
    """
    name = cluster.spec.grpc_tls_secret_name or ""
    data = (await kube.get(core(cluster.namespace, "secrets", name))).get("data")
    folder = Path(tempfile.mkdtemp(prefix="kubectl-rocketmq-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    files = {}
    for field, key in KEYS.items():
        try:
            content = base64.b64decode(str((data if isinstance(data, Mapping) else {})[key]), validate=True)
        except (KeyError, binascii.Error) as error:
            raise RefusedError(f"Secret {cluster.namespace}/{name} has no usable {key}") from error
        path = folder / key
        path.touch(mode=0o600)
        path.write_bytes(content)
        files[field] = str(path)
    service = names.controller(cluster.name)
    host = names.pod_host(names.pod_name(service, 0), service, cluster.namespace)
    return ClientTls(**files, server_name=host)
