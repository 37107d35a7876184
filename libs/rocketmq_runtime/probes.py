"""The HTTP port beside each process: /metrics, /healthz and /readyz.

It runs in its own thread, so that it still answers - with 503 - when the event loop is stuck.
"""

import threading
from collections.abc import Callable, Iterable
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

    def __init__(self, *, host: str, port: int, registry: CollectorRegistry, healthy: Check, ready: Check) -> None:
        """Open the port.

        Raises:
            OSError: the port cannot be bound.
        """
        metrics = make_wsgi_app(registry)

        def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            match environ.get("PATH_INFO"):
                case "/metrics":
                    page: Iterable[bytes] = metrics(environ, start_response)
                    return page
                case "/healthz" | "/livez":
                    return _answer(start_response, healthy())
                case "/readyz":
                    return _answer(start_response, ready())
                case _:
                    start_response("404 Not Found", [("Content-Type", "text/plain")])
                    return [b"try /metrics, /healthz or /readyz\n"]

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
