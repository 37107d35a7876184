"""Metadata of everything that is made: names, labels, and who owns it."""

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from rocketmq_operator.domain import names
from rocketmq_operator.domain.spec.common import Json, Metadata, PodTemplate


class Images(msgspec.Struct, frozen=True):
    """Where images come from when a resource names none: `repository/process:tag`."""

    repository: str = "rocketmq-ha"
    tag: str = "latest"
    apache_broker: str = ""
    """For engine: apache; empty: `apache-broker:5.3.3` of the repository."""

    def of(self, process: str) -> str:
        """The image of controller, namesrv, broker or sidecar."""
        return f"{self.repository}/{process}:{self.tag}"

    @property
    def apache(self) -> str:
        return self.apache_broker or f"{self.repository}/apache-broker:5.3.3"


class Owner(msgspec.Struct, frozen=True):
    """The resource that objects are made for."""

    kind: names.Kind
    component: names.Component
    metadata: Metadata

    @property
    def labels(self) -> dict[str, str]:
        return names.labels(self.component, self.metadata.name)

    @property
    def selector(self) -> dict[str, str]:
        """Selects its pods."""
        return names.selector(self.component, self.metadata.name)

    def made(self, api_version: str, kind: str, name: str, **content: object) -> Json:
        """The object `name`, owned by the resource: when that is deleted Kubernetes deletes the object, and the
        operator is told of the object's changes."""
        return {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {
                "name": name,
                "namespace": self.metadata.namespace,
                "labels": self.labels,
                "ownerReferences": [
                    {
                        "apiVersion": names.API_VERSION,
                        "kind": self.kind,
                        "name": self.metadata.name,
                        "uid": self.metadata.uid,
                        "controller": True,
                        "blockOwnerDeletion": True,
                    }
                ],
            },
            **content,
        }

    def pod_metadata(self, template: PodTemplate, annotations: Mapping[str, str | None]) -> Json:
        """Metadata of its pods: the user's labels and annotations, ours over them; those that are None are left out."""
        ours = {key: value for key, value in annotations.items() if value is not None}
        return {
            "labels": _sorted({**template.labels, **self.labels}),
            "annotations": _sorted({**template.annotations, **ours}),
        }


def headless_service(owner: Owner, name: str, ports: Mapping[str, int]) -> Json:
    """Gives each pod its DNS name, before it is ready: a controller must find its peers to become ready, a slave its
    master."""
    return owner.made(
        "v1",
        "Service",
        name,
        spec={
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": owner.selector,
            "ports": [
                {"name": port, "port": number, "targetPort": port, "protocol": "TCP"} for port, number in ports.items()
            ],
        },
    )


def config_map(owner: Owner, name: str, files: Mapping[str, str]) -> Json:
    """The configuration files by name."""
    return owner.made("v1", "ConfigMap", name, data=_sorted(files))


def config_hash(texts: Iterable[str]) -> str:
    """16 hex digits: an annotation of the pods, so that another configuration is another revision."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:16]


def _sorted(values: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(values.items()))
