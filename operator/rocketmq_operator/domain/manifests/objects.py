"""What all objects have in common: names, labels, owner; Services and ConfigMaps."""

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from rocketmq_formats import properties
from rocketmq_resources import names
from rocketmq_resources.common import Metadata
from rocketmq_resources.decoding import Json
from rocketmq_resources.schema.common import PodTemplate, Services

PropertyValue = str | int | bool


class Images(msgspec.Struct, frozen=True):
    """Default images of a resource, `repository/process:tag`, and as whom they run."""

    repository: str = "rocketmq-ha"
    tag: str = "latest"
    apache_broker: str = ""
    """For engine: apache; empty: `apache-broker:5.3.3` of the repository."""
    fixed_ids: bool = True
    """As user and group USER_ID; False: as the platform decides for each namespace."""

    def of(self, process: str) -> str:
        """The image of controller, namesrv, broker or sidecar."""
        return f"{self.repository}/{process}:{self.tag}"

    @property
    def apache(self) -> str:
        return self.apache_broker or f"{self.repository}/apache-broker:5.3.3"


class Owner(msgspec.Struct, frozen=True):
    """The resource that owns objects."""

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

    def new_object(self, api_version: str, kind: str, name: str, **content: object) -> Json:
        """The object `name`, owned by the resource: Kubernetes deletes the object with it, and changes of the
        object cause a reconcile of the resource."""
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
        """Metadata of its pods: the user's labels and annotations, ours over them, without None values."""
        ours = {key: value for key, value in annotations.items() if value is not None}
        return {
            "labels": _sorted({**template.labels, **self.labels}),
            "annotations": _sorted({**template.annotations, **ours}),
        }


def headless_service(
    owner: Owner,
    name: str,
    ports: Mapping[str, int],
    families: Services,
    *,
    selector: Mapping[str, str] | None = None,
    named_targets: bool = True,
) -> Json:
    """Gives each pod a DNS name before it is ready: a controller needs its peers for that, a slave its master.

    Args:
        selector: selects the pods, if not all of the owner's.
        named_targets: the pods name their ports as the Service does.
    """
    spec: dict[str, object] = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": owner.selector if selector is None else selector,
        "ports": [
            {"name": port, "port": number, "targetPort": port if named_targets else number, "protocol": "TCP"}
            for port, number in ports.items()
        ],
    }
    if families.ip_family_policy is not None:
        spec["ipFamilyPolicy"] = families.ip_family_policy
    if families.ip_families:
        spec["ipFamilies"] = list(families.ip_families)
    return owner.new_object("v1", "Service", name, spec=spec)


def config_map(owner: Owner, name: str, files: Mapping[str, str]) -> Json:
    """The configuration files by name."""
    return owner.new_object("v1", "ConfigMap", name, data=_sorted(files))


def properties_text(*layers: Mapping[str, PropertyValue]) -> str:
    """Java properties text of `layers`, later ones over earlier ones: sorted by key, ASCII, escaped where Java's
    `Properties.load` and our own reader would lose something; booleans are `true` and `false`."""
    merged: dict[str, str] = {}
    for layer in layers:
        merged.update((key, _property(value)) for key, value in layer.items())
    return properties.dump(merged).decode()


def _property(value: PropertyValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def config_hash(texts: Iterable[str]) -> str:
    """16 hex digits, an annotation of the pods, so that a changed configuration makes a new revision."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:16]


def _sorted(values: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(values.items()))
