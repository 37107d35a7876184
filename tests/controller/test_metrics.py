"""What /metrics shows of requests is what prometheus_client's own counters and histograms would show."""

import prometheus_client
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_controller.metrics import LATENCY_BUCKETS_US, ControllerMetrics
from rocketmq_formats.codes import RequestCode

COMMON = {"address": "a:1", "group": "g", "peer_id": "n0"}
NAMES = {904: "CONTROLLER_BROKER_HEARTBEAT", 1005: RequestCode(1005).name}

microseconds = st.sampled_from(LATENCY_BUCKETS_US) | st.floats(0, 2e7)


@given(st.lists(st.tuples(st.sampled_from(sorted(NAMES)), st.sampled_from(["success", "failed"]), microseconds)))
def test_requests_are_counted_as_prometheus_client_counts(requests: list[tuple[int, str, float]]) -> None:
    metrics = ControllerMetrics(address="a:1", group="g", peer_id="n0", extra_labels={})
    registry = prometheus_client.CollectorRegistry()
    counter = prometheus_client.Counter(
        "request", "Requests answered", (*COMMON, "request_type", "request_handle_status"), registry=registry
    )
    histogram = prometheus_client.Histogram(
        "request_latency_microseconds",
        "Time from a request's arrival to its answer",
        (*COMMON, "request_type"),
        buckets=LATENCY_BUCKETS_US,
        registry=registry,
    )
    for code, status, taken in requests:
        metrics.request(code, status, taken / 1e6)
        counter.labels(*COMMON.values(), NAMES[code], status).inc()
        histogram.labels(*COMMON.values(), NAMES[code]).observe(taken / 1e6 * 1e6)
    shown = prometheus_client.generate_latest(metrics.registry).decode()
    assert shown.startswith(prometheus_client.generate_latest(registry).decode())
