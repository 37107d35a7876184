"""A small API server for the operator's shells: discovery, lists, watches, server-side apply, merge patches, deletion.

Real HTTP on loopback, no admission, no defaults, no controllers. Every call is counted. `wait_until` waits for the
server's own changes, never for time.
"""

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio import client

from rocketmq_operator.kubernetes.kube import RESOURCES, Resource
from rocketmq_resources import names

Body = dict[str, Any]
PATIENCE = 30.0


class FakeApi:
    """Objects by kind, namespace and name."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Body] = {}
        self.calls: list[str] = []
        self.refuse: Callable[[str, str], int | None] = lambda _method, _path: None
        """(method, path) -> the HTTP status to refuse a call with."""
        self._version = 100
        self._changed = asyncio.Event()
        self._watchers: list[tuple[str, asyncio.Queue[Body | None]]] = []
        self._kinds = {resource.plural: kind for kind, resource in RESOURCES.items()}
        self._app = web.Application()
        self._app.router.add_route("*", "/{path:.*}", self._serve)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[client.Configuration]:
        """Serves until the context ends."""
        server = TestServer(self._app)
        await server.start_server()
        configuration = client.Configuration(host=str(server.make_url("")).rstrip("/"))
        configuration.retries = None
        try:
            yield configuration
        finally:
            for _, queue in self._watchers:
                queue.put_nowait(None)
            await server.close()

    async def wait_until(self, done: Callable[[], bool]) -> None:
        """Returns when `done`, which is looked at after every change."""
        async with asyncio.timeout(PATIENCE):
            while not done():
                self._changed.clear()
                await self._changed.wait()

    def get(self, kind: str, name: str, namespace: str = "ns") -> Body | None:
        return self.objects.get((kind, namespace, name))

    def put(self, body: Body) -> Body:
        """Another client writes an object."""
        kind, metadata = body["kind"], body["metadata"]
        key = (kind, metadata.get("namespace", ""), metadata["name"])
        old = self.objects.get(key)
        if old is not None and _essence(old) == _essence(body):
            return old
        self._version += 1
        new = copy.deepcopy(body)
        new["metadata"].setdefault("uid", old["metadata"]["uid"] if old else f"uid-{self._version}")
        generation = old["metadata"]["generation"] if old else 0
        if old is None or old.get("spec") != new.get("spec"):
            generation += 1
        new["metadata"] |= {"generation": generation, "resourceVersion": str(self._version)}
        self.objects[key] = new
        self._notify("ADDED" if old is None else "MODIFIED", new)
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            self.remove(*key)
        return new

    def remove(self, kind: str, namespace: str, name: str, *, quietly: bool = False) -> None:
        """It is gone; `quietly`: no watch tells."""
        body = self.objects.pop((kind, namespace, name))
        self._version += 1
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self._version)}}
        if not quietly:
            self._notify("DELETED", body)

    def _notify(self, kind: str, body: Body) -> None:
        for watched, queue in self._watchers:
            if watched == body["kind"]:
                queue.put_nowait({"type": kind, "object": body})
        self._changed.set()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = "/" + request.match_info["path"]
        parts = [part for part in path.split("/") if part]
        discovered = _discover(parts)
        if discovered is not None:
            return web.json_response(discovered)
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = rest[1] if rest[:1] == ["namespaces"] and len(rest) > 2 else ""
        rest = rest[2:] if namespace else rest
        kind = self._kinds[rest[0]]
        if "watch" in request.query:
            return await self._watch(request, kind)
        self.calls.append(f"{request.method} {path}")
        self._changed.set()
        refusal = self.refuse(request.method, path)
        if refusal is not None:
            return _status(refusal, "refused by the test")
        body = await request.json() if request.can_read_body else {}
        return self._answer(request, body, kind, namespace, rest[1:])

    def _answer(
        self, request: web.Request, body: Body, kind: str, namespace: str, rest: list[str]
    ) -> web.StreamResponse:
        if not rest:
            return self._collection(request, body, kind, namespace)
        key = (kind, namespace, rest[0])
        if request.method == "PATCH" and request.content_type == "application/apply-patch+yaml":
            old = self.objects.get(key, {})
            return web.json_response(self.put(merged(old, body)))
        if key not in self.objects:
            return _status(404, "not found")
        old = self.objects[key]
        wanted = body.get("metadata", {}).get("resourceVersion")
        if wanted not in (None, old["metadata"]["resourceVersion"]):
            return _status(409, "it has changed")
        if request.method == "DELETE":
            return self._delete(key, old, body)
        wished = {"GET": old, "PUT": body, "PATCH": merged(old, body)}[request.method]
        return web.json_response(self.put(wished))

    def _collection(self, request: web.Request, body: Body, kind: str, namespace: str) -> web.StreamResponse:
        if request.method == "POST":
            if (kind, namespace, body["metadata"]["name"]) in self.objects:
                return _status(409, "it is there")
            return web.json_response(self.put(body), status=201)
        items = [one for (of, where, _), one in self.objects.items() if of == kind and namespace in ("", where)]
        items = selected(items, request.query.get("fieldSelector", ""))
        metadata = {"resourceVersion": str(self._version)}
        return web.json_response({"kind": f"{kind}List", "apiVersion": "v1", "metadata": metadata, "items": items})

    def _delete(self, key: tuple[str, str, str], old: Body, body: Body) -> web.StreamResponse:
        uid = body.get("preconditions", {}).get("uid")
        if uid not in (None, old["metadata"]["uid"]):
            return _status(409, "another one")
        if old["metadata"].get("finalizers"):
            stamp = {**old["metadata"], "deletionTimestamp": "2026-11-21T19:00:00Z"}
            return web.json_response(self.put({**old, "metadata": stamp}))
        self.remove(*key)
        return web.json_response({"kind": "Status", "status": "Success"})

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        queue: asyncio.Queue[Body | None] = asyncio.Queue()
        since = int(request.query.get("resourceVersion", "0"))
        for (of, _, _), body in self.objects.items():
            if of == kind and int(body["metadata"]["resourceVersion"]) > since:
                queue.put_nowait({"type": "MODIFIED", "object": body})
        self._watchers.append((kind, queue))
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        try:
            while (event := await queue.get()) is not None:
                await response.write(json.dumps(event).encode() + b"\n")
        except ConnectionError:
            pass
        finally:
            self._watchers.remove((kind, queue))
        return response


def selected(items: list[Body], fields: str) -> list[Body]:
    """Those that a field selector selects."""
    for field in filter(None, fields.split(",")):
        path, _, wanted = field.partition("=")
        items = [one for one in items if _at(one, path.split(".")) == wanted]
    return items


def _at(body: Any, path: list[str]) -> Any:
    for name in path:
        body = body.get(name) if isinstance(body, Mapping) else None
    return body


def merged(old: Any, new: Any) -> Any:
    """A merge patch."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return copy.deepcopy(new)
    result = {key: value for key, value in old.items() if not (key in new and new[key] is None)}
    result.update((key, merged(old.get(key), value)) for key, value in new.items() if value is not None)
    return result


def _essence(body: Body) -> Body:
    metadata = {
        key: one for key, one in body["metadata"].items() if key not in ("resourceVersion", "generation", "uid")
    }
    return {**body, "metadata": metadata}


def _status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)


# kopf waits for the last two to be served, whether it uses them or not.
SERVED = {
    **RESOURCES,
    "Namespace": Resource("v1", "namespaces"),
    "CustomResourceDefinition": Resource("apiextensions.k8s.io/v1", "customresourcedefinitions"),
}


def _groups() -> set[str]:
    versions = {resource.api_version for resource in SERVED.values()}
    return {version.rpartition("/")[0] for version in versions}


def _group(group: str) -> Body:
    versions = {one.api_version for one in SERVED.values() if one.api_version.startswith(f"{group}/")}
    found = [{"groupVersion": version, "version": version.rpartition("/")[2]} for version in sorted(versions)]
    return {"name": group, "versions": found, "preferredVersion": found[0]}


def _discover(parts: list[str]) -> Body | None:
    match parts:
        case ["apis"]:
            return {"groups": [_group(group) for group in sorted(_groups() - {""})]}
        case ["api"]:
            return {"versions": ["v1"]}
        case ["api", version]:
            return {"resources": _resources(version)}
        case ["apis", group, version]:
            return {"resources": _resources(f"{group}/{version}")}
        case _:
            return None


def _resources(api_version: str) -> list[Body]:
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    found: list[Body] = []
    for kind, resource in SERVED.items():
        if resource.api_version == api_version:
            one = {"name": resource.plural, "singularName": kind.lower(), "kind": kind, "namespaced": True}
            found.append({**one, "verbs": verbs})
            if kind in names.PLURALS:
                found.append({**one, "name": f"{resource.plural}/status", "verbs": verbs})
    return found
