"""What /metrics shows of a name server: requests by code, and the sizes of its tables.

Requests are counted in plain integers, for routes are asked for tens of thousands of times a second; the scraping
thread reads them.
"""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rocketmq_formats.codes import RequestCode, ResponseCode


class Counts:
    """Answers by request and response code; codes that no request has are counted together."""

    def __init__(self) -> None:
        self.by_code: dict[tuple[int, int], int] = {}
        self._known = frozenset(RequestCode)

    def answered(self, request_code: int, response_code: int) -> None:
        key = (request_code if request_code in self._known else -1, response_code)
        self.by_code[key] = self.by_code.get(key, 0) + 1


class NameServerMetrics(Collector):
    """Everything /metrics shows of one name server; the callables run in the scraping thread and only read."""

    def __init__(
        self, registry: CollectorRegistry, counts: Counts, sizes: Callable[[], dict[str, tuple[str, int]]]
    ) -> None:
        """`sizes`: name of a gauge -> its help text and value."""
        self._counts, self._sizes = counts, sizes
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        requests = CounterMetricFamily(
            "rocketmq_namesrv_requests", "Requests answered", labels=["request_type", "response_code"]
        )
        for (request_code, response_code), count in sorted(self._counts.by_code.copy().items()):
            requests.add_metric([_name(RequestCode, request_code), _name(ResponseCode, response_code)], count)
        yield requests
        for name, (text, value) in self._sizes().items():
            yield GaugeMetricFamily(f"rocketmq_namesrv_{name}", text, value=value)


def _name(codes: type[RequestCode] | type[ResponseCode], code: int) -> str:
    try:
        return codes(code).name
    except ValueError:
        return "UNKNOWN"
