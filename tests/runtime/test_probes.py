"""The HTTP port beside each process."""

import http.client
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Gauge

from rocketmq_runtime.probes import ProbeServer


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
