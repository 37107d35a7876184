"""The HTTP port beside each process: /metrics, /healthz and /readyz, and what else a process has to say.

It runs in its own thread with an event loop of its own, so that it still answers - with 503 - when the process's event
loop is stuck. Anybody in the cluster may reach the port, so everything is bounded: connections (above the limit the
oldest of the host with the most is closed, so no host keeps the kubelet out), time and bytes of a request, the share of
the processor that metrics take, lines in the log.
"""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from rocketmq_formats.addresses import format_address
from rocketmq_runtime import background
from rocketmq_runtime.log_limiter import LogLimiter
from rocketmq_runtime.remoting.hosts import host_of
from rocketmq_runtime.remoting.open_files import OpenFiles
from rocketmq_runtime.sockets import listen, listen_error

log = structlog.get_logger(__name__)

MAX_CONNECTIONS: Final = 32
MAX_REQUEST: Final = 8 * 1024
"""Bytes of a request's line and headers."""
REQUEST_SECONDS: Final = 5.0
"""From the beginning of a connection until its answer has been taken."""
METRICS_SHARE: Final = 0.2
"""Of the time, that may go into writing metrics: who asks again and again waits."""
LOG_SECONDS: Final = 10.0

Check = Callable[[], str | None]
"""None when all is well, else the reason in one line. Called from another thread: reads only."""


class ProbeServer:
    """Serves the probes of one process until `stop`."""

    def __init__(
        self,
        *,
        host: str,
        port: int,
        registry: CollectorRegistry,
        healthy: Check,
        ready: Check,
        more: Mapping[str, Check] | None = None,
        remark: Check = lambda: None,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        """Open the port. `more` are further checks by path; `remark` is what /readyz says in place of "ok".

        Raises:
            OSError: the port cannot be bound.
        """
        checks = {"/healthz": healthy, "/livez": healthy, "/readyz": ready, **(more or {})}
        try:
            listening = listen(host, port, backlog=MAX_CONNECTIONS)
        except OSError as error:
            raise listen_error("metricsPromExporterPort: probes", host, port, error) from error
        self.port = int(listening[0].getsockname()[1])
        OpenFiles.reserve(MAX_CONNECTIONS)
        self._loop = asyncio.SelectorEventLoop()
        self._stopping = asyncio.Event()
        door = _Door(registry, checks, {"/readyz": remark}, request_seconds)
        self._thread = threading.Thread(
            target=_run, args=(self._loop, door, listening, self._stopping), name="probes", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Close the port and what is open."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._loop.close()
        OpenFiles.release(MAX_CONNECTIONS)


def _run(
    loop: asyncio.AbstractEventLoop, door: "_Door", listening: Sequence[socket.socket], stopping: asyncio.Event
) -> None:
    quiet = LogLimiter(loop.time, LOG_SECONDS)

    def trouble(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if quiet("trouble"):
            log.warning("the port for probes failed", reason=context.get("message"), error=context.get("exception"))

    loop.set_exception_handler(trouble)
    loop.run_until_complete(door.serve(listening, stopping))


class _Door:
    """Used in the probes' own event loop."""

    def __init__(
        self,
        registry: CollectorRegistry,
        checks: Mapping[str, Check],
        remarks: Mapping[str, Check],
        seconds: float,
    ) -> None:
        """`remarks`: what to say, by path, when the check found nothing."""
        self._registry, self._checks, self._remarks, self._seconds = registry, checks, remarks, seconds
        self._open: dict[asyncio.Task[None], tuple[str, asyncio.StreamWriter]] = {}
        """With their hosts, by age."""
        self._metrics_turn = asyncio.Lock()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="metrics")

    async def serve(self, listening: Sequence[socket.socket], stopping: asyncio.Event) -> None:
        servers = [await asyncio.start_server(self._accept, sock=one, limit=MAX_REQUEST) for one in listening]
        await stopping.wait()
        for server in servers:
            server.close()
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._writer.shutdown(wait=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = writer.get_extra_info("peername")
        host = host_of(format_address(name[0], name[1])) if name else ""
        if len(self._open) >= MAX_CONNECTIONS:
            self._give_way(host)
        task = background.start(self._converse(reader, writer), "probe")
        self._open[task] = host, writer
        task.add_done_callback(lambda done: self._open.pop(done, None))

    def _give_way(self, host: str) -> None:
        """Close the oldest connection of the host that would have the most with another one of `host`."""
        shares = Counter(of for of, _ in self._open.values())
        shares[host] += 1
        most = max(shares[of] for of, _ in self._open.values())
        task, (_, writer) = next(item for item in self._open.items() if shares[item[1][0]] == most)
        del self._open[task]
        writer.transport.abort()
        task.cancel()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(head))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, EOFError, asyncio.LimitOverrunError):
            pass  # closed, too slow, or not a request: no client waits
        finally:
            writer.transport.abort()

    async def _answer(self, head: bytes) -> bytes:
        line, _, headers = head.decode("latin-1").partition("\r\n")
        words = line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _response(HTTPStatus.BAD_REQUEST, "not HTTP/1")
        method, path = words[0], words[1].partition("?")[0]
        if method not in {"GET", "HEAD"}:
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, "GET and HEAD only")
        answer = await self._page(path, headers)
        return answer if method == "GET" else answer[: answer.index(b"\r\n\r\n") + 4]

    async def _page(self, path: str, headers: str) -> bytes:
        try:
            if path == "/metrics":
                return await self._metrics(headers)
            check = self._checks.get(path)
            trouble = None if check is None else check()
            remark = self._remarks[path]() if trouble is None and path in self._remarks else None
        except Exception as error:
            log.exception("probe failed", path=path)
            return _response(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
        if check is None:
            return _response(HTTPStatus.NOT_FOUND, f"try /metrics or {', '.join(self._checks)}")
        if trouble is not None:
            return _response(HTTPStatus.SERVICE_UNAVAILABLE, trouble)
        return _response(HTTPStatus.OK, remark or "ok")

    async def _metrics(self, headers: str) -> bytes:
        encoder, content_type = choose_encoder(_accepted(headers))
        loop = asyncio.get_running_loop()
        async with self._metrics_turn:
            began = loop.time()
            page = await loop.run_in_executor(self._writer, encoder, self._registry)
            pause = (loop.time() - began) * (1 / METRICS_SHARE - 1)
            await asyncio.sleep(pause)
        return _response(HTTPStatus.OK, page, content_type)


def _accepted(headers: str) -> str:
    for line in headers.split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() == "accept":
            return value.strip()
    return ""


def _response(status: HTTPStatus, text: str | bytes, content_type: str = "text/plain; charset=utf-8") -> bytes:
    body = text if isinstance(text, bytes) else f"{text}\n".encode(errors="replace")
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + body
