"""The official Java client under a steady load: how many sends per second it gets acknowledged. For the benchmarks."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rocketmq_demo.apache.processes import LARGER_HEAP, ProcessDiedError
from tests.lab.programs import LabProcess

_MAIN = "io.github.rocketmqha.lab.Load"


def java_sends_per_second(
    folder: Path,
    *,
    nameservers: Sequence[str],
    topic: str,
    in_flight: Sequence[int],
    warm_up: float,
    seconds: float,
    size: int = 1024,
    options: Sequence[str] = LARGER_HEAP,
) -> Mapping[int, float]:
    """Acknowledged asynchronous sends per second by number in flight, each after `warm_up` seconds of the same.

    Bodies of `size` bytes. Blocks until all is measured.

    Raises:
        ProcessDiedError: the client ended badly.
        RuntimeError: more than one send in a hundred failed.
    """
    arguments = ["load", "--namesrv", ";".join(nameservers), "--topic", topic]
    arguments += ["--in-flight", ",".join(map(str, in_flight)), "--size", str(size)]
    arguments += ["--warm-up-ms", str(int(warm_up * 1000)), "--millis", str(int(seconds * 1000))]
    with LabProcess("load", _MAIN, arguments, folder=folder, options=options) as process:
        code = process.wait(len(in_flight) * (warm_up + seconds) + 60)
        if code != 0:
            raise ProcessDiedError(f"{process.name} ended with {code}:\n{process.tail()}")
        lines = [json.loads(line) for line in process.output().splitlines() if line.startswith("{")]
    rates: dict[int, float] = {}
    for line in lines:
        rates[line["inFlight"]] = line["perSecond"]
        if line["failed"] * 100 > line["perSecond"] * seconds:
            raise RuntimeError(f"{line['failed']} sends of Java's client failed with {line['inFlight']} in flight")
    return rates
