"""The Kubernetes API with the user's own rights: the official client's configuration and transport, JSON in and out.

Its model classes are not used: what we read is our own resources and a few fields of others. `kubernetes` is imported
when the first command needs it, since that takes longer than all the rest of the program's start.

Every request has an end (--request-timeout) and is made once; what fails becomes one of `errors`, with what to do.
"""

import asyncio
import logging
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from rocketmq_kubectl.cluster.kube_options import KubeOptions
from rocketmq_kubectl.errors import (
    CommandRefusedError,
    ForbiddenError,
    NotFoundError,
    PluginError,
    UnreachableError,
    WrongUsageError,
)

if TYPE_CHECKING:
    from kubernetes.client import ApiClient, Configuration

Json = Mapping[str, object]
T = TypeVar("T")

MERGE_PATCH = "application/merge-patch+json"
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""Valid names of these kinds; anything else is refused before it gets into a path."""
CONNECTIONS = 32
"""Kept open to the API server."""
MAX_TEXT = 64 * 1024 * 1024
"""Limit of one answer in bytes."""


class Kube:
    """One API server. All methods raise a `PluginError` that says what was refused or did not answer."""

    def __init__(self, client: "ApiClient", *, namespace: str, timeout: float) -> None:
        self._client = client
        self.namespace = namespace
        """-n, else that of the context."""
        self.timeout = timeout
        """Seconds."""

    @property
    def host(self) -> str:
        """https://..., for messages."""
        return str(self._client.configuration.host)

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        """A resource, a list, or any other JSON."""
        return await self._json("GET", path, query=query)

    async def items(self, path: str, query: Mapping[str, str] | None = None) -> Sequence[Json]:
        """The items of a list, whole."""
        found = (await self.get(path, query)).get("items")
        return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []

    async def patch(self, path: str, change: Json, query: Mapping[str, str] | None = None) -> Json:
        """A merge patch; the resource as it is then."""
        return await self._json("PATCH", path, query=query, body=change, content_type=MERGE_PATCH)

    async def create(self, path: str, body: Json) -> Json:
        """A new resource; as the API server keeps it."""
        return await self._json("POST", path, body=body)

    async def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        """Something that is not JSON: logs."""
        return (await in_thread(lambda: self._request("GET", path, query, None, None))).decode(errors="replace")

    def signed(self, path: str, query: Mapping[str, str]) -> "tuple[Configuration, str, dict[str, str]]":
        """Configuration, URL and headers for a request that is not made here: a WebSocket's."""
        _, url, headers, *_ = self._client.param_serialize(
            "GET", path, query_params=list(query.items()), header_params={}, auth_settings=["BearerToken"]
        )
        return self._client.configuration, url, headers

    async def _json(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        content_type: str | None = None,
    ) -> Json:
        content = await in_thread(lambda: self._request(method, path, query, body, content_type))
        try:
            return msgspec.json.decode(content, type=dict[str, object])
        except msgspec.DecodeError as error:
            raise UnreachableError(f"{self.host} answered {path} with something that is not JSON: {error}") from error

    def _request(
        self, method: str, path: str, query: Mapping[str, str] | None, body: Json | None, content_type: str | None
    ) -> bytes:
        from kubernetes.client.exceptions import ApiException  # noqa: PLC0415 - loaded with the client
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        headers = {"Accept": "application/json, */*"} | ({"Content-Type": content_type} if content_type else {})
        request = self._client.param_serialize(
            method, path, query_params=list((query or {}).items()), header_params=headers, body=body,
            auth_settings=["BearerToken"],
        )  # fmt: skip
        try:
            answer = self._client.call_api(*request[:4], _request_timeout=(self.timeout, self.timeout))
            content: bytes = answer.response.read(MAX_TEXT)
            answer.response.release_conn()
        except (HTTPError, ApiException, OSError) as error:
            raise UnreachableError(
                f"the API server {self.host} does not answer: {error}: is the context right, and is it reachable?"
            ) from error
        if not 200 <= answer.status <= 299:
            raise refusal(answer.status, content, f"{method} {path}")
        return content


class _Status(msgspec.Struct):
    message: str = ""


def refusal(status: int, content: bytes, what: str) -> PluginError:
    """The error for an HTTP status of the API server, whose body is a `Status`."""
    try:
        message = msgspec.json.decode(content, type=_Status).message
    except msgspec.DecodeError:
        message = content.decode(errors="replace")
    message = message or f"{what}: HTTP {status}"
    match status:
        case 401:
            return ForbiddenError(f"not logged in ({message}): log in again, or choose another --context")
        case 403:
            return ForbiddenError(f"{message} (see docs/kubectl-rocketmq.md for the rights each command needs)")
        case 404:
            return NotFoundError(message)
        case 429 | 500 | 502 | 503 | 504:
            return UnreachableError(f"the API server cannot answer now (HTTP {status}): {message}: try again")
    return CommandRefusedError(message)


def checked_name(name: str, what: str) -> str:
    """`name` itself, if it can be the name of such a resource.

    Raises:
        WrongUsageError: it cannot.
    """
    if NAME.fullmatch(name) is None:
        raise WrongUsageError(f"{what}: {name!r} cannot be a name in Kubernetes")
    return name


def connect(options: KubeOptions) -> Kube:
    """The API server of the kubeconfig (or of the pod we run in) as `options` have it. Nothing is sent yet.

    Raises:
        WrongUsageError: no kubeconfig, no such context, or it cannot be used.
    """
    from kubernetes import client, config  # noqa: PLC0415 - a quarter of a second
    from kubernetes.config import kube_config  # noqa: PLC0415

    configuration = client.Configuration()
    configuration.retries = False
    configuration.connection_pool_maxsize = CONNECTIONS
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # what matters becomes an error of ours
    files = options.kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    paths = [os.path.expanduser(path) for path in files.split(os.pathsep) if path]  # noqa: PTH111 - kubectl's rules
    found = any(os.path.exists(path) for path in paths)  # noqa: PTH110
    try:
        if not found and options.kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=configuration)
            namespace = _own_namespace()
        elif not found:
            raise WrongUsageError(f"no kubeconfig at {files}: set KUBECONFIG or give --kubeconfig")
        else:
            merged = kube_config.KubeConfigMerger(os.pathsep.join(paths))
            loader = kube_config.KubeConfigLoader(
                merged.config,
                active_context=options.context,
                config_base_path=None,
                config_persister=merged.save_changes,
            )
            loader.load_and_set(configuration)
            namespace = loader.current_context["context"].get("namespace") or "default"
    except (config.ConfigException, OSError, ValueError) as error:
        raise WrongUsageError(f"the kubeconfig {files} cannot be used: {error}") from error
    chosen = checked_name(options.namespace or namespace, "-n")
    return Kube(client.ApiClient(configuration), namespace=chosen, timeout=options.request_timeout)


def _own_namespace() -> str:
    with open("/var/run/secrets/kubernetes.io/serviceaccount/namespace", encoding="utf-8") as file:  # noqa: PTH123
        return file.read(256).strip()


async def in_thread(work: Callable[[], T]) -> T:
    """What `work` returns or raises, from a thread of its own that a cancelled command does not wait for."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def resolve(result: T | None, error: Exception | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type] # T may be None itself

    def run() -> None:
        result, problem = None, None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - raised again where it is awaited
            problem = error
        try:
            loop.call_soon_threadsafe(resolve, result, problem)
        except RuntimeError:
            return  # the loop is closed and no task waits

    threading.Thread(target=run, daemon=True).start()
    return await done
