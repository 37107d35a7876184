"""The HTTP port beside each process: /metrics, /healthz and /readyz, and what else a process has to say.

It runs in its own thread, so that it still answers - with 503 - when the event loop is stuck.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app

Check = Callable[[], str | None]
"""None when all is well, else the reason in one line. Called from another thread: reads only."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    allow_reuse_address = True


class _QuietHandler(WSGIRequestHandler):
    timeout = 10  # a client that connects and says nothing holds its thread no longer than this

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Probes come every few seconds: not worth a line each."""


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
    ) -> None:
        """Open the port. `more` are further checks by path.

        Raises:
            OSError: the port cannot be bound.
        """
        metrics = make_wsgi_app(registry)
        checks = {"/healthz": healthy, "/livez": healthy, "/readyz": ready, **(more or {})}

        def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            path = str(environ.get("PATH_INFO"))
            if path == "/metrics":
                page: Iterable[bytes] = metrics(environ, start_response)
                return page
            if (check := checks.get(path)) is not None:
                return _answer(start_response, check())
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [f"try /metrics or {', '.join(checks)}\n".encode()]

        try:
            self._server = make_server(host, port, app, server_class=_Server, handler_class=_QuietHandler)
        except OSError as error:
            raise OSError(error.errno, f"probes cannot listen on {host}:{port}: {error.strerror}") from error
        self.port = int(self._server.server_port)
        self._thread = threading.Thread(target=self._server.serve_forever, name="probes", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _answer(start_response: StartResponse, trouble: str | None) -> Iterable[bytes]:
    status = HTTPStatus.OK if trouble is None else HTTPStatus.SERVICE_UNAVAILABLE
    start_response(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{trouble or 'ok'}\n".encode()]
