"""Ports of pods, reached through the API server with the user's own rights: kubectl port-forward, inside this process.

gRPC and the remoting client need an address, so each forwarded port gets a listener on loopback; every connection to it
is one WebSocket to the pod's `portforward` subresource (channel 0: data, channel 1: why it ended), moved by one thread.

Why not `kubectl port-forward` as a child: the credentials that read the resources are used again (an exec plugin is
asked once, not once per pod), a refusal arrives as an HTTP status rather than as text, there is nothing to start per
pod and nothing that outlives us, and kubectl need not be there. Why not the official client's own `portforward`: it
replaces a method of the client while it runs, so two at once are not safe, and its thread ends with a traceback when
a pod goes away. We take its `create_websocket` (kubeconfig's TLS, proxies, tokens) and move the bytes ourselves.
"""

import contextlib
import select
import socket
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from rocketmq_kubectl.cluster.kube import Kube, in_thread, refusal
from rocketmq_kubectl.errors import PluginError, UnreachableError

if TYPE_CHECKING:
    from websocket import WebSocket

SUBPROTOCOL: Final = "v4.channel.k8s.io"
MAX_CONNECTIONS: Final = 8
"""That one forwarded port may have in its life: gRPC opens one, and another one after an error."""
MAX_PORTS: Final = 64
"""Forwarded by one command at a time."""
CHUNK: Final = 64 * 1024
WRITE_SECONDS: Final = 10.0
"""Time in which either side must accept bytes."""
ERROR_BYTES: Final = 2000


class Forwards:
    """The forwarded ports of one command; `close`, or the end of `async with`, ends them all."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._ports: dict[tuple[str, str, int], _Port] = {}

    async def address(self, namespace: str, pod: str, port: int) -> str:
        """`127.0.0.1:n`, which leads to `port` of the pod. The way there has been opened once, so most refusals are
        raised here.

        Raises:
            PluginError: no such pod, not allowed, or not reachable.
        """
        key = namespace, pod, port
        if key not in self._ports:
            if len(self._ports) >= MAX_PORTS:
                raise UnreachableError(f"more than {MAX_PORTS} ports of pods would be forwarded at once: name a group")
            first = await in_thread(lambda: dial(self._kube, namespace, pod, port))
            self._ports[key] = _Port(self._kube, namespace, pod, port, first)
        return self._ports[key].address

    def name(self, address: str) -> str | None:
        """The pod behind an address, for messages; None if it is none of ours."""
        return next(
            (f"pod {namespace}/{pod}" for (namespace, pod, _), port in self._ports.items() if port.address == address),
            None,
        )

    def problem(self, address: str) -> str | None:
        """Why connections to this address ended, if the pod's side has said so."""
        return next((port.problem for port in self._ports.values() if port.address == address), None)

    def close(self) -> None:
        """End every listener and connection; their threads end with them."""
        for port in self._ports.values():
            port.close()
        self._ports.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def dial(kube: Kube, namespace: str, pod: str, port: int) -> "WebSocket":
    """A WebSocket to one port of a pod; blocks until it is open.

    Raises:
        PluginError: refused, or not reachable.
    """
    import websocket  # noqa: PLC0415 - the client's, a tenth of a second
    from kubernetes.stream.ws_client import create_websocket  # noqa: PLC0415

    websocket.setdefaulttimeout(kube.timeout)
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/portforward"
    configuration, url, headers = kube.signed(path, {"ports": str(port)})
    lowered = {name.lower(): value for name, value in headers.items()} | {"sec-websocket-protocol": SUBPROTOCOL}
    try:
        opened: WebSocket = create_websocket(configuration, url.replace("http", "ws", 1), lowered)
    except websocket.WebSocketBadStatusException as error:
        refused = refusal(error.status_code, error.resp_body or b"", f"port-forward to pod {pod}")
        raise _with_pod(refused, pod) from error
    except (websocket.WebSocketException, OSError) as error:
        raise UnreachableError(f"no port-forward to pod {namespace}/{pod}: {error}") from error
    return opened


def _with_pod(error: PluginError, pod: str) -> PluginError:
    return error if pod in str(error) else type(error)(f"pod {pod}: {error}")


class _Port:
    """One listener, its thread, and one thread for each of its connections."""

    def __init__(self, kube: Kube, namespace: str, pod: str, port: int, first: "WebSocket") -> None:
        self._kube, self._where, self._port = kube, (namespace, pod), port
        self._spare: WebSocket | None = first
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=MAX_CONNECTIONS)
        self._closed = False
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.problem: str | None = None
        threading.Thread(target=self._accept, name=f"forward {pod}:{port}", daemon=True).start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            connections, self._open = self._open, set()
            spare, self._spare = self._spare, None
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
        self._listener.close()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # its thread closes it
        if spare is not None:
            spare.shutdown()

    def _accept(self) -> None:
        for _ in range(MAX_CONNECTIONS):
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            with self._lock:
                if self._closed:
                    connection.close()
                    return
                self._open.add(connection)
                spare, self._spare = self._spare, None
            threading.Thread(target=self._serve, args=(connection, spare), daemon=True).start()
        self._listener.close()

    def _serve(self, connection: socket.socket, tunnel: "WebSocket | None") -> None:
        try:
            if tunnel is None:
                tunnel = dial(self._kube, *self._where, self._port)
            self.problem = _move(connection, tunnel) or self.problem
        except PluginError as error:
            self.problem = str(error)
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()
            if tunnel is not None:
                tunnel.shutdown()


def _move(connection: socket.socket, tunnel: "WebSocket") -> str | None:
    """Move bytes both ways until one side ends; what the pod's side says of the reason."""
    from websocket import ABNF, WebSocketException  # noqa: PLC0415 - loaded with the tunnel

    connection.settimeout(WRITE_SECONDS)
    tunnel.settimeout(WRITE_SECONDS)
    said = [False, False]  # each channel begins with the port's number
    far = tunnel.sock
    assert far is not None, "it is open"
    try:
        while True:
            # TLS hands over whole records: what it holds already does not make the socket readable again
            held = bool(getattr(far, "pending", int)())
            ready = [far] if held else select.select([far, connection], [], [])[0]
            if connection in ready:
                near = connection.recv(CHUNK)
                if not near:
                    return None
                tunnel.send(b"\0" + near, ABNF.OPCODE_BINARY)
            if far in ready:
                opcode, frame = tunnel.recv_data()
                if opcode == ABNF.OPCODE_CLOSE:
                    return None
                if not frame or frame[0] > 1:
                    continue
                channel, content = frame[0], frame[1:]
                if not said[channel]:
                    said[channel], content = True, content[2:]
                if channel == 1 and content:
                    return str(content[:ERROR_BYTES], errors="replace")
                if content:
                    connection.sendall(content)
    except (WebSocketException, OSError, ValueError):
        return None  # one side has closed: the caller's own call fails
