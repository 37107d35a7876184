"""A small API server: resources in a dictionary, merge patches, labels, logs, and port-forwards over WebSockets.

It runs in a thread of its own, since the commands run their own event loops. Nothing in it knows RocketMQ.
"""

import asyncio
import contextlib
import copy
import threading
from collections.abc import Callable
from typing import Any

from aiohttp import WSMsgType, web

Body = dict[str, Any]
PLURALS = {
    "brokergroups", "controllerclusters", "nameservers", "pods", "secrets", "configmaps", "services", "events", "jobs",
    "cronjobs", "statefulsets", "persistentvolumeclaims", "poddisruptionbudgets", "networkpolicies",
}  # fmt: skip


class FakeApi:
    """`objects` by path; `ports` are what (namespace, pod, port) leads to; `refuse` answers before anything else."""

    def __init__(self) -> None:
        self.objects: dict[str, Body] = {}
        self.logs: dict[tuple[str, str, bool], str] = {}
        self.ports: dict[tuple[str, str, int], str] = {}
        self.refused: dict[str, tuple[int, str]] = {}
        """`VERB resource` (get pods/portforward) to status and message."""
        self.requests: list[str] = []
        self.token: str | None = None
        self.on_patch: Callable[[str, Body], None] = lambda path, body: None
        """Called with each resource that was patched, to change it as an operator would."""
        self._loop = asyncio.new_event_loop()
        self._runner: web.AppRunner | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def put(self, path: str, body: Body) -> Body:
        self.objects[path] = body
        return body

    def stop(self) -> None:
        async def end() -> None:
            assert self._runner is not None
            await self._runner.cleanup()

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> int:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port: int = self._runner.addresses[0][1]
        return port

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        verb = {"GET": "get", "PATCH": "patch", "POST": "create", "DELETE": "delete"}[request.method]
        what = next((part for part in reversed(parts) if part in PLURALS), parts[-1])
        what += "/" + parts[-1] if parts[-1] in {"portforward", "log"} else ""
        self.requests.append(f"{verb} {request.path_qs}")
        refusal = self.refused.get(f"{verb} {what}")
        if self.token is not None and request.headers.get("authorization") != f"Bearer {self.token}":
            refusal = 401, "Unauthorized"
        if refusal is not None:
            return _status(*refusal)
        return await self._answer(request, parts)

    async def _answer(self, request: web.Request, parts: list[str]) -> web.StreamResponse:
        if parts[-1] == "portforward":
            return await self._forward(request, parts[3], parts[5])
        if parts[-1] == "log":
            key = parts[5], request.query["container"], "previous" in request.query
            return web.Response(text=self.logs[key]) if key in self.logs else _status(404, f"no log of {key}")
        if request.method == "PATCH":
            return self._patch(request.path, await request.json())
        if request.method == "POST":
            body = await request.json()
            return web.json_response(self.put(f"{request.path}/{body['metadata']['name']}", body), status=201)
        return self._get(request, parts)

    def _get(self, request: web.Request, parts: list[str]) -> web.Response:
        if request.path in self.objects:
            return web.json_response(self.objects[request.path])
        if parts[-1] in PLURALS:
            return web.json_response({"kind": "List", "items": self._list(request, parts)})
        return _status(404, f'{parts[-2] if len(parts) > 1 else ""} "{parts[-1]}" not found')

    def _list(self, request: web.Request, parts: list[str]) -> list[Body]:
        prefix, plural = "/".join(["", *parts[: 2 if parts[0] == "api" else 3]]), parts[-1]
        wanted = [part.split("=", 1) for part in request.query.get("labelSelector", "").split(",") if part]
        found = []
        for path, body in sorted(self.objects.items()):
            inside = path.startswith(request.path + "/") or (
                "namespaces" not in parts and path.startswith(prefix) and path.split("/")[-2] == plural
            )
            labels = body["metadata"].get("labels", {})
            if inside and all(labels.get(key) == value for key, value in wanted):
                found.append(body)
        return found

    def _patch(self, path: str, change: Body) -> web.Response:
        if path not in self.objects:
            return _status(404, "not found")
        body = copy.deepcopy(self.objects[path])
        _merge(body, change)
        if body.get("spec") != self.objects[path].get("spec"):
            body["metadata"]["generation"] = body["metadata"].get("generation", 0) + 1
        self.objects[path] = body
        answer = copy.deepcopy(body)
        self.on_patch(path, body)
        return web.json_response(answer)

    async def _forward(self, request: web.Request, namespace: str, pod: str) -> web.StreamResponse:
        port = int(request.query["ports"])
        if f"/api/v1/namespaces/{namespace}/pods/{pod}" not in self.objects:
            return _status(404, f'pods "{pod}" not found')
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        for channel in (b"\0", b"\1"):
            await socket.send_bytes(channel + port.to_bytes(2, "little"))
        target = self.ports.get((namespace, pod, port))
        try:
            if target is None:
                raise ConnectionRefusedError(f"failed to connect to localhost:{port}: connection refused")
            host, _, number = target.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(number))
        except OSError as error:
            await socket.send_bytes(b"\1" + f"error forwarding port {port} to pod {pod}: {error}".encode())
            await socket.close()
            return socket

        async def back() -> None:
            while data := await reader.read(65536):
                await socket.send_bytes(b"\0" + data)
            await socket.close()

        task = asyncio.create_task(back())
        with contextlib.suppress(ConnectionError):
            async for message in socket:
                if message.type is WSMsgType.BINARY and message.data[:1] == b"\0":
                    writer.write(message.data[1:])
                    await writer.drain()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await task
        writer.close()
        return socket


def _status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "status": "Failure", "message": message, "code": code}, status=code)


def _merge(body: Body, change: Body) -> None:
    for key, value in change.items():
        if value is None:
            body.pop(key, None)
        elif isinstance(value, dict):
            _merge(body.setdefault(key, {}), value)
        else:
            body[key] = value
