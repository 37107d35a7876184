"""The API server of `api`, called without HTTP, with news that come late and out of order.

kopf keeps the order of events within one object (a uid) only, and any of them may come after an answer to a later call.
"""

import copy
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from rocketmq_operator.kubernetes.kube import ConflictError, NotFoundError, UnavailableError, identity
from rocketmq_resources.decoding import Json
from tests.operator.model.api import Body, FakeApi, merged, selected


class Server(FakeApi):
    """Objects, and events that no one has received yet."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """`changed` is called after every change."""
        super().__init__()
        self.news: dict[str, deque[tuple[str, Body]]] = {}
        """By uid, in order: type and object."""
        self._told = changed

    def take(self, uid: str) -> tuple[str, Body]:
        """The next event of an object."""
        event = self.news[uid].popleft()
        if not self.news[uid]:
            del self.news[uid]
        return event

    def of(self, kind: str) -> list[Body]:
        """Objects of a kind, in an order that does not depend on the past."""
        return [body for (found, _, _), body in sorted(self.objects.items()) if found == kind]

    def change(self, body: Body, **parts: Any) -> Body:
        """A controller writes parts of an object."""
        return self.put(merged(body, parts))

    def _notify(self, kind: str, body: Body) -> None:
        self.news.setdefault(body["metadata"]["uid"], deque()).append((kind, copy.deepcopy(body)))
        self._told()


class DirectKube:
    """Stands for `Kube`."""

    def __init__(self, server: Server, turn: Callable[[], Awaitable[None]], wrote: Callable[[Body], None]) -> None:
        """`turn` runs before every call, as other things happen while the operator waits. `wrote(resource)` is called
        after every write of a status."""
        self._server = server
        self._turn = turn
        self._wrote = wrote
        self.refuse: Callable[[str, str, str], bool] = lambda _verb, _kind, _name: False
        """(verb, kind, name) -> whether the call fails."""
        self.before_status: Callable[[], Awaitable[None]] | None = None
        """Runs once, before the next write of a status."""

    async def apply(self, made: Json) -> Json:
        kind, namespace, name = identity(made)
        await self._begin("apply", kind, name)
        old = self._server.objects.get((kind, namespace, name), {})
        return copy.deepcopy(self._server.put(merged(old, dict(made))))

    async def patch(self, kind: str, namespace: str, name: str, body: Json, *, sub: str = "") -> Json:
        await self._begin(f"patch{sub}", kind, name)
        old = self._found(kind, namespace, name)
        metadata = body.get("metadata", {})
        assert isinstance(metadata, dict)
        for one in ("resourceVersion", "uid"):
            if metadata.get(one) not in (None, old["metadata"][one]):
                raise ConflictError("patch", 409, "it has changed")
        change = {"status": body["status"]} if sub == "status" else dict(body)
        new = self._server.put(merged(old, change))
        if sub == "status":
            self._wrote(new)
        return copy.deepcopy(new)

    async def create(self, made: Json) -> Json:
        kind, namespace, name = identity(made)
        await self._begin("create", kind, name)
        if (kind, namespace, name) in self._server.objects:
            raise ConflictError("create", 409, "it exists")
        return copy.deepcopy(self._server.put(dict(made)))

    async def get(self, kind: str, namespace: str, name: str) -> Json:
        await self._begin("get", kind, name)
        return copy.deepcopy(self._found(kind, namespace, name))

    async def list(self, kind: str, namespace: str, *, fields: str) -> Json:
        await self._begin("list", kind, "")
        items = [body for (of, where, _), body in self._server.objects.items() if (of, where) == (kind, namespace)]
        return {"items": copy.deepcopy(selected(items, fields))}

    async def delete(self, kind: str, namespace: str, name: str, uid: str | None, *, orphan: bool = False) -> Json:
        """Only pods stop slowly."""
        del orphan
        await self._begin("delete", kind, name)
        old = self._found(kind, namespace, name)
        if uid not in (None, old["metadata"]["uid"]):
            raise ConflictError("delete", 409, "another one")
        if kind == "Pod":
            return copy.deepcopy(self._server.change(old, metadata={"deletionTimestamp": "2026-11-21T19:00:00Z"}))
        self._server.remove(kind, namespace, name)
        return {"kind": "Status", "status": "Success"}

    async def _begin(self, verb: str, kind: str, name: str) -> None:
        await self._turn()
        if verb == "patchstatus" and self.before_status is not None:
            first, self.before_status = self.before_status, None
            await first()
        if self.refuse(verb, kind, name):
            raise UnavailableError(verb, 503, "refused by the test")

    def _found(self, kind: str, namespace: str, name: str) -> Body:
        found = self._server.objects.get((kind, namespace, name))
        if found is None:
            raise NotFoundError("get", 404, "not found")
        return found
