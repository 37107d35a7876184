"""Calls to the Kubernetes API, with whole objects as JSON, typed errors and a counter of calls.

A thin layer over the official client (its asyncio part), which has configuration, credentials and connections. Used by
`execute`, `lease`, `recorder`, `sweep` and `release`; the only other access to the API server are kopf's watches.
"""

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from kubernetes.aio import client, config

from rocketmq_resources import names
from rocketmq_resources.decoding import Json

TIMEOUT: Final = 20.0
"""Seconds that a call may take."""
APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
MAX_MESSAGE: Final = 500
"""Characters of a server's message that are kept."""


class Resource(msgspec.Struct, frozen=True):
    """The API path of a kind."""

    api_version: str
    plural: str

    def path(self, namespace: str | None, name: str | None = None) -> str:
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        within = "" if namespace is None else f"/namespaces/{quote(namespace, safe='')}"
        return f"{root}{within}/{self.plural}" + ("" if name is None else f"/{quote(name, safe='')}")


RESOURCES: Final[Mapping[str, Resource]] = {
    **{kind: Resource(names.API_VERSION, plural) for kind, plural in names.PLURALS.items()},
    "StatefulSet": Resource("apps/v1", "statefulsets"),
    "Deployment": Resource("apps/v1", "deployments"),
    "Service": Resource("v1", "services"),
    "ConfigMap": Resource("v1", "configmaps"),
    "Secret": Resource("v1", "secrets"),
    "Pod": Resource("v1", "pods"),
    "PersistentVolumeClaim": Resource("v1", "persistentvolumeclaims"),
    "Event": Resource("v1", "events"),
    "PodDisruptionBudget": Resource("policy/v1", "poddisruptionbudgets"),
    "NetworkPolicy": Resource("networking.k8s.io/v1", "networkpolicies"),
    "CronJob": Resource("batch/v1", "cronjobs"),
    "ServiceAccount": Resource("v1", "serviceaccounts"),
    "Role": Resource("rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": Resource("rbac.authorization.k8s.io/v1", "rolebindings"),
    "Lease": Resource("coordination.k8s.io/v1", "leases"),
}


class KubeError(Exception):
    """A call to the API server failed. `status`: the HTTP status; 0: no answer."""

    def __init__(self, what: str, status: int, message: str) -> None:
        super().__init__(f"{what}: {message}" if status == 0 else f"{what}: {status} {message}")
        self.status = status
        self.message = message


class NotFoundError(KubeError):
    """The object or kind does not exist."""


class ConflictError(KubeError):
    """The object exists already, or has changed since it was read."""


class RefusedByServerError(KubeError):
    """The API server refuses the request as invalid or forbidden: a retry fails until something else changes."""


class UnavailableError(KubeError):
    """The API server cannot be reached, is overloaded or has an error: retry later."""


class Kube:
    """Calls with one set of credentials."""

    def __init__(self, configuration: client.Configuration) -> None:
        self._configuration = configuration
        self._api = client.ApiClient(configuration)
        self.count: Callable[[str, str, str], None] = _count_nothing
        """Called for each call with verb, resource, and HTTP status or `error`."""

    async def close(self) -> None:
        await self._api.close()

    async def apply(self, made: Json) -> Json:
        """Server-side apply of a whole object as the manager of its fields; returns the stored object."""
        kind, namespace, name = identity(made)
        query = {"fieldManager": names.FIELD_MANAGER, "force": "true"}
        return await self._call("PATCH", "apply", kind, namespace, name, body=made, query=query, content=APPLY)

    async def patch(self, kind: str, namespace: str, name: str, body: Json, *, sub: str = "") -> Json:
        """Merge patch. With metadata.uid or resourceVersion it changes only that very object or version."""
        query = {"fieldManager": names.FIELD_MANAGER}
        return await self._call("PATCH", "patch", kind, namespace, name, body=body, query=query, content=MERGE, sub=sub)

    async def create(self, made: Json) -> Json:
        kind, namespace, _ = identity(made)
        return await self._call("POST", "create", kind, namespace, None, body=made)

    async def replace(self, made: Json) -> Json:
        """Update; refused with ConflictError if metadata.resourceVersion in it is not the newest."""
        kind, namespace, name = identity(made)
        return await self._call("PUT", "update", kind, namespace, name, body=made)

    async def get(self, kind: str, namespace: str, name: str) -> Json:
        return await self._call("GET", "get", kind, namespace, name)

    async def list(
        self,
        kind: str,
        namespace: str | None,
        selector: str = "",
        *,
        fields: str = "",
        metadata_only: bool = False,
    ) -> Json:
        """The list object; `namespace` None: of all namespaces; `fields`: a selector by fields."""
        query = {"labelSelector": selector} if selector else {}
        if fields:
            query["fieldSelector"] = fields
        accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
        return await self._call(
            "GET", "list", kind, namespace, None, query=query, accept=accept if metadata_only else None
        )

    async def delete(self, kind: str, namespace: str, name: str, uid: str | None, *, orphan: bool = False) -> Json:
        """Delete only the object with that uid; `orphan` keeps the objects it owns. Returns the object or a Status."""
        body: dict[str, object] = {"propagationPolicy": "Orphan" if orphan else "Background"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        return await self._call("DELETE", "delete", kind, namespace, name, body=body)

    async def _call(
        self,
        method: str,
        verb: str,
        kind: str,
        namespace: str | None,
        name: str | None,
        *,
        body: Json | None = None,
        query: Mapping[str, str] | None = None,
        content: str = "application/json",
        accept: str | None = None,
        sub: str = "",
    ) -> Json:
        resource = RESOURCES[kind]
        path = resource.path(namespace, name) + (f"/{sub}" if sub else "")
        plural = f"{resource.plural}/{sub}" if sub else resource.plural
        what = f"{verb} {plural} {namespace or ''}/{name or ''}"
        headers = {"Accept": accept or "application/json", "Content-Type": content, "User-Agent": "rocketmq-operator"}
        await self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        url = f"{self._configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            response = await self._api.rest_client.request(
                method, url, headers=headers, body=body, _request_timeout=TIMEOUT
            )
            data = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.count(verb, plural, "error")
            raise UnavailableError(what, 0, str(error) or type(error).__name__) from error
        self.count(verb, plural, str(response.status))
        if response.status >= 400:
            raise _error(what, response.status, data)
        try:
            answer = msgspec.json.decode(data, type=dict[str, object])
        except msgspec.DecodeError as error:
            raise UnavailableError(what, response.status, f"the answer is not a JSON object: {error}") from error
        return answer


def _count_nothing(_verb: str, _resource: str, _status: str) -> None:
    """The default for `count`."""


def identity(made: Json) -> tuple[str, str, str]:
    """Kind, namespace and name of an object."""
    metadata = made.get("metadata")
    assert isinstance(metadata, Mapping), "objects have metadata"
    return str(made.get("kind")), str(metadata.get("namespace", "")), str(metadata.get("name", ""))


async def load_configuration() -> client.Configuration:
    """The configuration of the pod's service account, else of the user's kubeconfig.

    Raises:
        UnavailableError: neither exists.
    """
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        try:
            await config.load_kube_config(client_configuration=configuration)
        except (config.ConfigException, OSError) as error:
            raise UnavailableError("credentials", 0, f"neither a service account nor a kubeconfig: {error}") from error
    # Nothing is repeated behind our back: the queue decides when.
    configuration.retries = None
    return configuration


def _error(what: str, status: int, data: bytes) -> KubeError:
    try:
        message = str(msgspec.json.decode(data, type=dict[str, object]).get("message", ""))
    except msgspec.DecodeError:
        message = data.decode(errors="replace")
    message = message[:MAX_MESSAGE]
    if status in (404, 410):
        return NotFoundError(what, status, message)
    if status == 409:
        return ConflictError(what, status, message)
    if status in (429, 401) or status >= 500:
        return UnavailableError(what, status, message)
    return RefusedByServerError(what, status, message)
