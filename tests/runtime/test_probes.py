"""The HTTP port beside each process."""

import http.client
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Gauge

from rocketmq_runtime.probes import MAX_CONNECTIONS, MAX_REQUEST, ProbeServer
from rocketmq_runtime.remoting.open_files import OpenFiles


class Checks:
    """What the checks say."""

    healthy: str | None = None
    ready: str | None = None
    other: str | None = None


@pytest.fixture
def checks() -> Checks:
    return Checks()


@pytest.fixture
def port(checks: Checks) -> Iterator[int]:
    registry = CollectorRegistry()
    Gauge("things", "how many", registry=registry).set(7)
    server = ProbeServer(
        host="127.0.0.1",
        port=0,
        registry=registry,
        healthy=lambda: checks.healthy,
        ready=lambda: checks.ready,
        more={"/livez/other": lambda: checks.other},
    )
    yield server.port
    server.stop()


def get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "check"), [("/healthz", "healthy"), ("/livez", "healthy"), ("/readyz", "ready"), ("/livez/other", "other")]
)
def test_each_check_speaks_for_itself(port: int, checks: Checks, path: str, check: str) -> None:
    assert get(port, path) == (200, "ok\n")
    setattr(checks, check, "stuck")
    assert get(port, path) == (503, "stuck\n")


def test_metrics_and_what_there_is_else(port: int) -> None:
    assert "things 7.0" in get(port, "/metrics")[1]
    assert get(port, "/") == (404, "try /metrics or /healthz, /livez, /readyz, /livez/other\n")


def connect(port: int, host: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(host, 0))


def answer_of(connection: socket.socket) -> bytes:
    """All that comes until the other side ends the connection."""
    data = b""
    try:
        while part := connection.recv(65536):
            data += part
    except ConnectionResetError:
        pass
    return data


def test_head_and_wrong_requests(port: int) -> None:
    cases = {
        b"HEAD /readyz HTTP/1.1\r\nHost: x\r\n\r\n": (b"HTTP/1.1 200 OK\r\n", b"\r\n\r\n"),
        b"GET /readyz?verbose HTTP/1.0\r\n\r\n": (b"HTTP/1.1 200 OK\r\n", b"\r\n\r\nok\n"),
        b"POST /readyz HTTP/1.1\r\n\r\n": (b"HTTP/1.1 405 ", b"GET and HEAD only\n"),
        b"\x16\x03\x01 nonsense\r\n\r\n": (b"HTTP/1.1 400 ", b"not HTTP/1\n"),
        b"GET /" + b"x" * MAX_REQUEST + b" HTTP/1.1\r\n\r\n": (b"", b""),
    }
    for request, (begin, end) in cases.items():
        with connect(port) as connection:
            connection.sendall(request)
            answer = answer_of(connection)
            assert answer.startswith(begin)
            assert answer.endswith(end)


def test_metrics_in_the_form_that_is_asked_for(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    answer = connection.getresponse()
    assert "openmetrics" in (answer.getheader("Content-Type") or "")
    assert answer.read().endswith(b"# EOF\n")
    connection.close()


def test_a_check_that_fails_is_an_answer() -> None:
    def ready() -> str | None:
        raise RuntimeError("broken")

    server = ProbeServer(host="127.0.0.1", port=0, registry=CollectorRegistry(), healthy=lambda: None, ready=ready)
    assert get(server.port, "/readyz") == (500, "RuntimeError: broken\n")
    assert get(server.port, "/livez") == (200, "ok\n")
    server.stop()


def test_connections_are_bounded_and_the_oldest_gives_way(port: int) -> None:
    threads = threading.active_count()
    silent = [connect(port) for _ in range(3 * MAX_CONNECTIONS)]
    assert get(port, "/livez") == (200, "ok\n")
    assert threading.active_count() <= threads
    for connection in silent[: 2 * MAX_CONNECTIONS]:
        assert answer_of(connection) == b""
    newest = silent[-1]
    newest.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
    assert answer_of(newest).endswith(b"ok\n")
    for connection in silent:
        connection.close()


def test_one_host_does_not_keep_others_out(port: int) -> None:
    """The kubelet's slow request survives whatever comes from elsewhere."""
    kubelet = connect(port)
    kubelet.sendall(b"GET /livez HT")
    strangers = [connect(port, "127.0.0.2") for _ in range(3 * MAX_CONNECTIONS)]
    another = connect(port, "127.0.0.3")
    another.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
    assert answer_of(another).endswith(b"ok\n")
    kubelet.sendall(b"TP/1.1\r\n\r\n")
    assert answer_of(kubelet).endswith(b"ok\n")
    for connection in (kubelet, another, *strangers):
        connection.close()


def test_a_request_has_an_end_however_slowly_it_comes() -> None:
    server = ProbeServer(
        host="127.0.0.1",
        port=0,
        registry=CollectorRegistry(),
        healthy=lambda: None,
        ready=lambda: None,
        request_seconds=0.05,
    )
    with connect(server.port) as connection:
        connection.sendall(b"GET /liv")
        assert answer_of(connection) == b""
    server.stop()


def test_aborted_requests_leave_nothing_in_the_log(port: int, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(20):
        connection = connect(port)
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    assert get(port, "/livez") == (200, "ok\n")
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


def test_the_connections_are_taken_from_what_strangers_may_open() -> None:
    before = OpenFiles.wanted, OpenFiles.open
    server = ProbeServer(
        host="127.0.0.1", port=0, registry=CollectorRegistry(), healthy=lambda: None, ready=lambda: None
    )
    assert (OpenFiles.wanted, OpenFiles.open) == (before[0] + MAX_CONNECTIONS, before[1] + MAX_CONNECTIONS)
    with pytest.raises(OSError, match=f"probes cannot listen on 127.0.0.1:{server.port}"):
        ProbeServer(
            host="127.0.0.1",
            port=server.port,
            registry=CollectorRegistry(),
            healthy=lambda: None,
            ready=lambda: None,
        )
    server.stop()
    assert (OpenFiles.wanted, OpenFiles.open) == before
